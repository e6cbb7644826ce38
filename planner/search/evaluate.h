// SPDX-License-Identifier: Apache-2.0
#pragma once

// Evaluation of one layout: its bound without a schedule, and its program, memory and simulated time.

#include <optional>
#include <span>
#include <vector>

#include "core/schedule.h"
#include "core/schedule_catalog.h"
#include "core/timeline.h"
#include "planner/search/split_model.h"
#include "planner/search/step_bounds.h"

namespace mpt::planner {

/// What is known of a layout before any schedule is made.
struct Estimate {
  Layout layout;
  std::vector<StageFootprint> footprints;
  StepCost cost;
  double bound_s = 0.0;
  int64_t floor_bytes = 0;  // of the fullest rank; its exact peak is not below
};
Estimate estimate(const SearchProblem& problem, const Layout& layout);
Estimate estimate(const SearchProblem& problem, const SplitModel& split, const Layout& layout);
/// From what its stages hold and cost.
Estimate estimate(const SearchProblem& problem, const Layout& layout, std::vector<StageFootprint> footprints,
                  StepCost cost);

/// See StepBounds.
double lower_bound_s(const SearchProblem& problem, const Layout& layout, const StepCost& cost,
                     const ScheduleEntry& entry, std::span<const int> rank_of_stage);

class ProgramCache;

struct Evaluation {
  Schedule schedule;
  StepProgram program;
  std::vector<RankMemory> memory;
  std::optional<Rejection> rejection;  // set: what follows is empty
  std::vector<double> durations_s;
  Timeline timeline;
  double step_time_s = 0.0;
  double bubble_share = 0.0;
  int64_t peak_bytes = 0;
};
/// `programs`: of a search, where programs may be at hand.
Evaluation evaluate(const SearchProblem& problem, const Estimate& estimate, ProgramCache* programs = nullptr);
/// Simulated whether it fits or not; `rejection` says if it does not.
Evaluation evaluate_regardless(const SearchProblem& problem, const Estimate& estimate);
/// Why the layout does not fit, transfer buffers included.
std::optional<Rejection> exact_memory_rejection(const SearchProblem& problem, const Estimate& estimate);

/// By the catalog; of a schedule that is made to measure, the leanest named one of its placement.
Schedule named_schedule(const Layout& layout, int64_t micro_batches);
/// Where an offloaded optimizer takes more than a host has.
std::optional<Rejection> host_rejection(const SearchProblem& problem, const Layout& layout);

/// Whether its framework deals these micro-batches out in rounds that are not as many as pipeline ranks.
bool has_equal_rounds(const Layout& layout, int64_t micro_batches);

}  // namespace mpt::planner
