// SPDX-License-Identifier: Apache-2.0
#include "planner/search/evaluate.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/quantity.h"
#include "core/lower.h"
#include "frameworks/framework.h"
#include "frameworks/supports/supports.h"
#include "planner/memory/memory_model.h"
#include "planner/search/made_to_measure.h"

namespace mpt::planner {
namespace {

Schedule schedule_of(const SearchProblem& problem, const Estimate& e) {
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

// `programs`: null, or has the named schedules' programs.
Evaluation simulated(const SearchProblem& problem, const Estimate& e, Schedule schedule,
                     ProgramCache* programs) {
  Evaluation result;
  result.schedule = std::move(schedule);
  if (programs != nullptr && !find_schedule(e.layout.schedule, "layout").made_to_measure) {
    const bool tied = e.footprints.front().tied_embedding_bytes > 0;
    result.program = *programs->program(e.layout, micro_batches(e.layout, problem.workload), tied);
    set_bytes(e.footprints, result.program);
  } else {
    result.program = lower(e.layout, result.schedule, e.footprints);
  }
  result.memory = rank_memory(result.program, e.footprints);
  result.rejection = rejection_of(problem, e.layout, result.memory);
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

}  // namespace

bool has_equal_rounds(const Layout& layout, int64_t micro_batches) {
  if (micro_batches % layout.pipeline == 0) return false;
  const auto* const framework = frameworks::find_framework(layout.execution.framework);
  return framework != nullptr && frameworks::deals_equal_rounds(*framework, layout.schedule);
}

Schedule named_schedule(const Layout& layout, int64_t micro_batches) {
  const ScheduleEntry& entry = leanest_schedule(find_schedule(layout.schedule, "layout"), int(layout.chunks));
  return make_schedule(entry, int(layout.pipeline), int(layout.chunks), int(micro_batches),
                       has_equal_rounds(layout, micro_batches));
}

Estimate estimate(const SearchProblem& problem, const Layout& layout) {
  return estimate(problem, SplitModel(problem, layout), layout);
}

Estimate estimate(const SearchProblem& problem, const SplitModel& split, const Layout& layout) {
  const ScheduleEntry& entry = find_schedule(layout.schedule, "layout");
  const std::vector<int> placement = entry.placement(int(layout.pipeline), int(layout.chunks));
  return estimate(problem, layout, models::stage_footprints(split.pieces, problem.model, layout),
                  cost_of(problem, split, layout, placement));
}

Estimate estimate(const SearchProblem& problem, const Layout& layout, std::vector<StageFootprint> footprints,
                  StepCost cost) {
  const ScheduleEntry& entry = find_schedule(layout.schedule, "layout");
  const std::vector<int> placement = entry.placement(int(layout.pipeline), int(layout.chunks));
  Estimate e{layout, std::move(footprints), std::move(cost)};
  e.bound_s = lower_bound_s(problem, layout, e.cost, entry, placement);
  const auto floors = memory_floors(layout, placement, e.footprints);
  e.floor_bytes = *std::max_element(floors.begin(), floors.end());
  return e;
}

double lower_bound_s(const SearchProblem& problem, const Layout& layout, const StepCost& cost,
                     const ScheduleEntry& entry, std::span<const int> rank_of_stage) {
  return lower_bounds_s(layout, cost, rank_of_stage, micro_batches(layout, problem.workload),
                        contention_of(problem, layout).best(layout.pipeline))
      .of(entry);
}

Evaluation evaluate_regardless(const SearchProblem& problem, const Estimate& e) {
  return simulated(problem, e, schedule_of(problem, e), nullptr);
}

Evaluation evaluate(const SearchProblem& problem, const Estimate& e, ProgramCache* programs) {
  Evaluation result;
  result.schedule = schedule_of(problem, e);
  result.rejection = rejection_of(problem, e.layout, rank_memory(result.schedule, e.footprints));
  return result.rejection ? result : simulated(problem, e, std::move(result.schedule), programs);
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
