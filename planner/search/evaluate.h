// SPDX-License-Identifier: Apache-2.0
#pragma once

// Evaluation of one layout: its bound without a schedule, and its program, memory and simulated time.

#include <optional>
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

class ProgramCache;

struct Evaluation {
  Schedule schedule;
  StepProgram program;
  int64_t more_micro_batches = 0;  // of the step beyond the program's and the schedule's
  std::vector<RankMemory> memory;
  std::optional<Rejection> rejection;  // set: what follows is empty
  std::vector<double> durations_s;
  Timeline timeline;
  double step_time_s = 0.0;
  double bubble_share = 0.0;
  int64_t peak_bytes = 0;
  /// The step has so many times the program's micro-batches.
  double times() const { return 1.0 + double(more_micro_batches) / double(program.micro_batches); }
};
Evaluation evaluate(const SearchProblem& problem, const Estimate& estimate);
/// Of a layout that fits: by a few rounds of micro-batches where those tell the time, as in a search.
Evaluation evaluate_by_rounds(const SearchProblem& problem, const Estimate& estimate, ProgramCache& programs);
/// Simulated whether it fits or not; `rejection` says if it does not.
Evaluation evaluate_regardless(const SearchProblem& problem, const Estimate& estimate);
/// Why the layout does not fit, transfer buffers included.
std::optional<Rejection> exact_memory_rejection(const SearchProblem& problem, const Estimate& estimate);

/// Where an offloaded optimizer takes more than a host has.
std::optional<Rejection> host_rejection(const SearchProblem& problem, const Layout& layout);

}  // namespace mpt::planner
