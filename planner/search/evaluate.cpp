// SPDX-License-Identifier: Apache-2.0
#include "planner/search/evaluate.h"

#include "base/quantity.h"
#include "core/lower.h"
#include "planner/memory/memory_model.h"
#include "planner/search/made_to_measure.h"

namespace mpt::planner {
namespace {

// A program has four instructions of about 170 bytes for each stage and micro-batch.
void check_work(const SearchProblem& problem, const Layout& layout) {
  const int64_t count = micro_batches(layout, problem.workload), stages = layout.stages();
  if (count <= kMostScheduleCells / stages) return;
  const int64_t most = kMostScheduleCells / stages * layout.micro_batch * layout.data;
  refuse_input("--global-batch", fmt::format("{} micro-batches in {} stages", count, stages),
               fmt::format("at most {} stages x micro-batches", kMostScheduleCells),
               fmt::format("for example --global-batch {}", most));
}

Schedule schedule_of(const SearchProblem& problem, const Estimate& e) {
  check_work(problem, e.layout);
  if (find_schedule(e.layout.schedule, "layout").made_to_measure) {
    ProgramCache programs;
    if (auto made = make_to_measure(problem, e.layout, e.footprints, e.cost, programs)) {
      Schedule schedule = *made->schedule;
      schedule.name = e.layout.schedule;
      return schedule;
    }
  }
  return named_schedule(e.layout, micro_batches(e.layout, problem.workload));
}

// GPUs first, then hosts.
std::optional<Rejection> rejection_of(const SearchProblem& problem, const Layout& layout,
                                      const std::vector<RankMemory>& memory) {
  auto rejection = check_memory(memory, limits_of_ranks(problem, layout));
  return rejection ? rejection : host_rejection(problem, layout);
}

// Without its program and its times.
Evaluation checked(const SearchProblem& problem, const Estimate& e, Evaluation result) {
  result.memory = rank_memory(result.program, e.footprints);
  result.rejection = rejection_of(problem, e.layout, result.memory);
  for (const RankMemory& m : result.memory) result.peak_bytes = std::max(result.peak_bytes, m.peak_bytes);
  MPT_CHECK(e.floor_bytes <= result.peak_bytes, "{}: floor of {} bytes, peak of {}", layout_name(e.layout),
            e.floor_bytes, result.peak_bytes);
  MPT_CHECK(e.bound_s <= result.step_time_s, "{}: bound of {} s, simulated {} s", layout_name(e.layout),
            e.bound_s, result.step_time_s);
  result.bubble_share = bubble_share(result.program, result.timeline, result.times(), result.step_time_s);
  return result;
}

Evaluation simulated(const SearchProblem& problem, const Estimate& e, Schedule schedule) {
  Evaluation result;
  result.schedule = std::move(schedule);
  result.program = lower(e.layout, result.schedule, e.footprints);
  result.durations_s = e.cost.durations(result.program);
  result.timeline = simulate(result.program, result.durations_s, contention_of(problem, e.layout));
  result.step_time_s = step_time_s(result.timeline);
  return checked(problem, e, std::move(result));
}

}  // namespace

Estimate estimate(const SearchProblem& problem, const Layout& layout) {
  return estimate(problem, SplitModel(problem, layout), layout);
}

Estimate estimate(const SearchProblem& problem, const SplitModel& split, const Layout& layout) {
  const ScheduleEntry& entry = find_schedule(layout.schedule, "layout");
  const std::vector<int> placement = entry.placement(int(layout.pipeline), int(layout.chunks));
  Estimate e{layout, models::stage_footprints(split.pieces, problem.model, layout),
             cost_of(problem, split, layout, placement)};
  e.bound_s = lower_bounds_s(layout, e.cost, placement, micro_batches(layout, problem.workload),
                             contention_of(problem, layout).best(layout.pipeline))
                  .of(entry);
  const auto floors = memory_floors(layout, placement, e.footprints);
  e.floor_bytes = *std::max_element(floors.begin(), floors.end());
  return e;
}

Evaluation evaluate_regardless(const SearchProblem& problem, const Estimate& e) {
  return simulated(problem, e, schedule_of(problem, e));
}

Evaluation evaluate(const SearchProblem& problem, const Estimate& e) {
  Evaluation result;
  result.schedule = schedule_of(problem, e);
  result.rejection = rejection_of(problem, e.layout, rank_memory(result.schedule, e.footprints));
  return result.rejection ? result : simulated(problem, e, std::move(result.schedule));
}

Evaluation evaluate_by_rounds(const SearchProblem& problem, const Estimate& e, ProgramCache& programs) {
  if (find_schedule(e.layout.schedule, "layout").made_to_measure) return evaluate(problem, e);
  SimulatedStep step;
  programs.simulate(
      {e.layout, micro_batches(e.layout, problem.workload), e.footprints.front().tied_embedding_bytes > 0,
       e.cost, contention_of(problem, e.layout), std::numeric_limits<double>::infinity()},
      step);
  Evaluation result;
  result.schedule = *programs.schedule(e.layout, step.program->micro_batches);
  result.program = *step.program;
  set_bytes(e.footprints, result.program);
  result.more_micro_batches = step.more_micro_batches;
  result.durations_s = std::move(step.durations_s);
  result.timeline = std::move(step.timeline);
  result.step_time_s = step.step_time_s;
  return checked(problem, e, std::move(result));
}

std::optional<Rejection> host_rejection(const SearchProblem& problem, const Layout& layout) {
  const int64_t room = problem.cluster.host_memory_bytes;
  const int64_t needed = offloaded_bytes(problem.model, layout, problem.workload, problem.cluster).of_host;
  if (room == 0 || needed <= room) return std::nullopt;
  return Rejection{"host memory", -1, double(needed), double(room),
                   fmt::format("a host needs {} for the optimizer", format_bytes(double(needed)))};
}

std::optional<Rejection> exact_memory_rejection(const SearchProblem& problem, const Estimate& e) {
  return rejection_of(problem, e.layout, rank_memory(schedule_of(problem, e), e.footprints));
}

}  // namespace mpt::planner
