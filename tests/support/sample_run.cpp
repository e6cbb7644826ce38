// SPDX-License-Identifier: Apache-2.0
#include "tests/support/sample_run.h"

#include <cmath>

#include "planner/memory/memory_model.h"
#include "planner/simulate/simulator.h"
#include "tests/support/core_plan.h"

namespace mpt::test {

SampleRun sample_run(const std::string& schedule, int64_t pipeline, int64_t micro_batches) {
  SampleRun s;
  s.plan = core_plan(schedule, pipeline, schedule == "interleaved" ? 2 : 1, micro_batches);
  s.program = program_of(s.plan);
  s.predicted = planner::simulate(s.program, durations_of(s.plan, s.program));
  store_timeline(s.plan, s.program, s.predicted);
  s.plan.prediction.memory = planner::rank_memory(s.program, s.plan.footprints);
  s.plan.prediction.model_flop_per_step = 1e9;
  SearchCertificate& search = s.plan.search;
  search.layouts = 120;
  search.over_memory = 40;
  search.over_bound = 70;
  search.simulated = 10;
  search.optimal = true;
  search.seconds = 0.01;
  s.plan.ranking = {{s.plan.layout,
                     s.plan.prediction.step_time_s,
                     s.plan.prediction.bubble_share,
                     12345,
                     s.plan.prediction.tokens_per_s,
                     {}},
                    {s.plan.layout,
                     s.plan.prediction.step_time_s * 1.2,
                     0.3,
                     12000,
                     s.plan.prediction.tokens_per_s / 1.2,
                     {}}};
  s.plan.links = {{"pipeline", pipeline, s.plan.cluster.levels.front()}};
  s.plan.reasons = {"It is the fastest of those that fit.", "The runner-up idles more."};
  s.plan.rejected = {"memory: 40 layouts of tp1"};
  s.plan.evidence = {"Beside published runs of mpt", "step time: as predicted"};
  for (const Span& span : s.predicted.spans)
    s.result.timeline.spans.push_back({span.start_s * 1.1, span.end_s * 1.1});
  s.result.peak_bytes = peak_bytes(s.program);
  for (int64_t step = 1; step <= 20; ++step) {
    const double time = s.plan.prediction.step_time_s * 1.1;
    reports::StepRecord& record = s.result.steps.emplace_back();
    record.step = step;
    record.loss = 5.5 * std::exp(-0.05 * double(step));
    record.gradient_norm = 1.0;
    record.learning_rate = 1e-3;
    record.step_time_s = time;
    record.tokens_per_s = double(s.plan.workload.tokens_per_step()) / time;
    record.bubble_share = 0.2;
    record.data_wait_s = 1e-5;
    for (int64_t rank = 0; rank < pipeline; ++rank)
      record.ranks.push_back({.rank = rank, .compute_s = 0.8 * time, .idle_s = 0.2 * time});
  }
  return s;
}

}  // namespace mpt::test
