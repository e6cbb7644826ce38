// SPDX-License-Identifier: Apache-2.0
#include "planner/search/evaluate.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/lower.h"
#include "core/schedule_catalog.h"
#include "models/footprint.h"
#include "planner/memory/memory_model.h"

namespace mpt::planner {
namespace {

double round_trip_s(const StageCost& stage) {
  return stage.of(InstructionKind::forward) + stage.of(InstructionKind::backward);
}

// A micro-batch's way from one stage to the next and back.
double transfers_s(const StageCost& below, const StageCost& above) {
  return below.of(InstructionKind::transfer_activation) + above.of(InstructionKind::transfer_gradient);
}

int64_t step_micro_batches(const SearchProblem& problem, const Layout& layout) {
  return micro_batches(layout, problem.workload);
}

Schedule schedule_of(const SearchProblem& problem, const Layout& layout) {
  const auto& generate = find_schedule(layout.schedule, "layout").generate;
  return generate(int(layout.pipeline), int(layout.chunks), int(step_micro_batches(problem, layout)));
}

}  // namespace

Contention contention_of(const SearchProblem& problem, const Layout& layout) {
  return {problem.cost->rate_by_active_ranks(), layout.tensor * layout.data};
}

Estimate estimate(const SearchProblem& problem, const Layout& layout) {
  Estimate e{layout, models::stage_footprints(problem.model, layout, problem.workload), {}};
  e.cost = step_cost(problem.model, layout, e.footprints, problem.workload, *problem.cost);
  e.bound_s =
      lower_bound_s(layout, e.cost, step_micro_batches(problem, layout), contention_of(problem, layout));
  e.floor_bytes = memory_floor(layout, e.footprints).peak_bytes;
  return e;
}

// Every schedule of the catalog places stage s on rank s % pipeline, or a rank's lowest stage no lower than
// that. evaluate() holds every simulated layout to the bound.
double lower_bound_s(const Layout& layout, const StepCost& cost, int64_t micro_batches,
                     const Contention& contention) {
  const auto ranks = size_t(layout.pipeline);
  std::vector<double> work(ranks, 0.0), optimizer(ranks, 0.0);
  double own_reduction = std::numeric_limits<double>::infinity();
  for (size_t s = 0; s < cost.stages.size(); ++s) {
    const StageCost& stage = cost.stages[s];
    work[s % ranks] += double(micro_batches) * round_trip_s(stage);
    optimizer[s % ranks] += stage.of(InstructionKind::optimizer_step);
    if (s % ranks == 0) own_reduction = std::min(own_reduction, stage.of(InstructionKind::reduce_gradient));
  }
  double best_rate = 0.0, best_total_rate = 0.0;  // of one lane, and of all together
  for (int64_t lanes = 1; lanes <= layout.pipeline; ++lanes) {
    best_rate = std::max(best_rate, contention.rate(lanes));
    best_total_rate = std::max(best_total_rate, double(lanes) * contention.rate(lanes));
  }
  const bool reduces = layout.data > 1;
  double longest = 0.0, below = 0.0;
  for (size_t p = 0; p < ranks; ++p) {
    const double reduction = !reduces ? 0.0
                             : p == 0 ? own_reduction
                                      : cost.stages.front().of(InstructionKind::reduce_gradient);
    longest = std::max(longest, below + work[p] / best_rate + reduction);
    below += round_trip_s(cost.stages[p]) / best_rate;
    if (p + 1 < ranks) below += transfers_s(cost.stages[p], cost.stages[p + 1]);
  }
  longest = std::max(longest, std::accumulate(work.begin(), work.end(), 0.0) / best_total_rate);
  longest += cost.reduce_norm_s + *std::max_element(optimizer.begin(), optimizer.end()) / best_rate;
  // A rounding error must not turn the bound into more than the time it bounds.
  return longest * (1.0 - 1e-9);
}

Evaluation evaluate(const SearchProblem& problem, const Estimate& e) {
  Evaluation result;
  result.schedule = schedule_of(problem, e.layout);
  result.rejection =
      check_memory(rank_memory_without_slots(result.schedule, e.footprints), problem.memory_limit_bytes);
  if (result.rejection) return result;
  result.program = lower(e.layout, result.schedule, e.footprints);
  result.memory = rank_memory(result.program, e.footprints);
  result.rejection = check_memory(result.memory, problem.memory_limit_bytes);
  if (result.rejection) return result;
  for (const RankMemory& m : result.memory) result.peak_bytes = std::max(result.peak_bytes, m.peak_bytes);
  MPT_CHECK(e.floor_bytes <= result.peak_bytes, "{}: floor of {} bytes, peak of {}", layout_name(e.layout),
            e.floor_bytes, result.peak_bytes);
  result.durations_s = e.cost.durations(result.program);
  result.timeline = simulate(result.program, result.durations_s, contention_of(problem, e.layout));
  result.step_time_s = step_time_s(result.timeline);
  MPT_CHECK(e.bound_s <= result.step_time_s, "{}: bound of {} s, simulated {} s", layout_name(e.layout),
            e.bound_s, result.step_time_s);
  result.bubble_share = bubble_share(result.program, result.timeline);
  return result;
}

std::optional<Rejection> exact_memory_rejection(const SearchProblem& problem, const Estimate& e) {
  const StepProgram program = lower(e.layout, schedule_of(problem, e.layout), e.footprints);
  return check_memory(rank_memory(program, e.footprints), problem.memory_limit_bytes);
}

std::optional<Rejection> quick_memory_rejection(const SearchProblem& problem, const Estimate& e) {
  return check_memory(rank_memory_without_slots(schedule_of(problem, e.layout), e.footprints),
                      problem.memory_limit_bytes);
}

}  // namespace mpt::planner
