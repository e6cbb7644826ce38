// SPDX-License-Identifier: Apache-2.0

// The idle share of pipelines against closed forms, which the code does not know.

#include "planner/explain/plan_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/lower.h"
#include "core/schedule_catalog.h"
#include "planner/explain/explain.h"
#include "planner/search/search.h"
#include "tests/support/core_plan.h"
#include "tests/support/random_problem.h"

namespace mpt::planner {
namespace {

constexpr double kExact = 1e-12;

// A pipeline whose forwards take `forward_s` by stage, backwards twice as long, and transfers `transfer_s`.
struct Pipeline {
  Pipeline(const std::string& schedule, std::vector<double> forward, int chunks, int m, double transfer_s)
      : forward_s(std::move(forward)), micro_batches(m) {
    Layout layout;
    const int stages = int(forward_s.size());
    layout.pipeline = stages / chunks;
    layout.chunks = chunks;
    const Schedule order = find_schedule(schedule, "test").generate(stages / chunks, chunks, m);
    program = lower(layout, order, test::distinct_footprints(stages));
    for (const Instruction& i : program.instructions) {
      durations_s.push_back(i.kind == InstructionKind::forward    ? forward_s[size_t(i.stage)]
                            : i.kind == InstructionKind::backward ? 2.0 * forward_s[size_t(i.stage)]
                            : i.is_transfer()                     ? transfer_s
                                                                  : 0.0);
    }
    const Timeline timeline = simulate(program, durations_s);
    step_s = step_time_s(timeline);
    idle_share = bubble_share(program, timeline);
    idle = pipeline_idle(program, durations_s, {}, step_s, idle_share);
  }

  std::vector<double> forward_s;
  int micro_batches;
  StepProgram program;
  std::vector<double> durations_s;
  double step_s = 0.0, idle_share = 0.0;
  PipelineIdle idle;
};

// (p-1)/(m+p-1), and (p-1)/(v m + p-1) interleaved: Narayanan et al. 2021, arXiv:2104.04473, section 2.2,
// over the whole step.
TEST(PipelineIdle, EqualStagesLoseTheFillingAlone) {
  for (const int p : {2, 3, 8}) {
    for (const int m : {p, 3 * p, 256}) {
      for (const char* name : {"gpipe", "1f1b"}) {
        const Pipeline pipeline(name, std::vector<double>(size_t(p), 1.0), 1, m, 0.0);
        EXPECT_NEAR(pipeline.idle.fill, double(p - 1) / double(m + p - 1), kExact) << name << p << " " << m;
        EXPECT_NEAR(pipeline.idle.unequal_stages, 0.0, kExact);
        EXPECT_NEAR(pipeline.idle.waiting, 0.0, kExact);
      }
    }
    const Pipeline interleaved("interleaved", std::vector<double>(size_t(2 * p), 1.0), 2, 4 * p, 0.0);
    EXPECT_NEAR(interleaved.idle.fill, double(p - 1) / double(8 * p + p - 1), kExact) << p;
  }
}

// The pipeline of README's plan: 7/263 of its step are the filling, whatever its stages hold. GPipe's step is
// the sum of all stages and m - 1 times the slowest; in 1f1b it is so where the slowest stage is the last.
TEST(PipelineIdle, UnequalStagesLoseTheDifferenceToTheSlowest) {
  const std::vector<double> layers{5, 11, 11, 11, 11, 11, 11, 9}, slow_end{9, 10, 10, 13};
  for (const auto& [name, forward_s, m] : {std::tuple{"gpipe", layers, 256},
                                           {"gpipe", layers, 8},
                                           {"1f1b", slow_end, 4},
                                           {"1f1b", slow_end, 64}}) {
    const double p = double(forward_s.size());
    const double all = std::accumulate(forward_s.begin(), forward_s.end(), 0.0);
    const double most = *std::max_element(forward_s.begin(), forward_s.end());
    const double step_s = 3.0 * (all + (m - 1) * most);
    const double idle = 1.0 - 3.0 * m * all / (p * step_s), fill = (p - 1.0) / (m + p - 1.0);
    const Pipeline pipeline(name, forward_s, 1, m, 0.0);
    ASSERT_NEAR(pipeline.step_s, step_s, 1e-9) << name << " " << m;
    EXPECT_NEAR(pipeline.idle.fill, fill, kExact) << name << " " << m;
    EXPECT_NEAR(pipeline.idle.unequal_stages, idle - fill, kExact) << name << " " << m;
    EXPECT_NEAR(pipeline.idle.waiting, 0.0, kExact);
  }
}

TEST(PipelineIdle, WhatTransfersCostIsWaiting) {
  const Pipeline free("1f1b", {2, 2, 2, 3}, 1, 16, 0.0), slow("1f1b", {2, 2, 2, 3}, 1, 16, 0.5);
  ASSERT_GT(slow.step_s, free.step_s);
  const double kept = free.step_s / slow.step_s;  // the step without transfers, as a share of the one with
  EXPECT_NEAR(slow.idle.waiting, 1.0 - kept, kExact);
  EXPECT_NEAR(slow.idle.fill, free.idle.fill * kept, kExact);
  EXPECT_NEAR(slow.idle.unequal_stages, free.idle.unequal_stages * kept, kExact);
}

TEST(PipelineIdle, ThePartsOfAnyPlanAddUpToItsIdleShare) {
  size_t pipelines = 0;
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    const test::RandomProblem r(seed);
    const SearchResult result = search(r.problem, 1);
    if (result.best.empty()) continue;
    const Plan plan = make_plan(result, r.problem);
    const auto& idle = plan.prediction.pipeline_idle;
    ASSERT_EQ(idle.has_value(), plan.layout.pipeline > 1) << seed;
    if (!idle) continue;
    ++pipelines;
    EXPECT_NEAR(idle->fill + idle->unequal_stages + idle->waiting, plan.prediction.bubble_share, 1e-9)
        << seed;
    for (const double share : {idle->fill, idle->unequal_stages, idle->waiting})
      EXPECT_GE(share, 0.0) << seed;
  }
  EXPECT_GT(pipelines, 0u);
}

}  // namespace
}  // namespace mpt::planner
