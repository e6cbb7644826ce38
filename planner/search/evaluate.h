// SPDX-License-Identifier: Apache-2.0
#pragma once

// Evaluation of one layout: its bound without a schedule, and its program, memory and simulated time.

#include <memory>
#include <optional>
#include <vector>

#include "core/schedule.h"
#include "core/timeline.h"
#include "planner/cost/step_cost.h"
#include "planner/search/problem.h"
#include "planner/simulate/simulator.h"

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

/// Never above the simulated step time. Rank p must do all its compute; before its first it waits for one
/// micro-batch to come through the stages below its lowest and over the links between them, and after its
/// last backward that micro-batch goes back through them; then come the reduction of stage 0's gradients (or,
/// on stage 0's own rank, of one of its stages), the norm, and the optimizer. None of these overlaps another,
/// so they add up. Where ranks share cores, compute advances at no more than the best rate of one lane, and
/// all ranks together at no more than the best total rate.
double lower_bound_s(const Layout& layout, const StepCost& cost, int64_t micro_batches,
                     const Contention& contention);

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
Evaluation evaluate(const SearchProblem& problem, const Estimate& estimate);
/// Why the layout does not fit: exact, transfer buffers included, or without them and cheaper.
std::optional<Rejection> exact_memory_rejection(const SearchProblem& problem, const Estimate& estimate);
std::optional<Rejection> quick_memory_rejection(const SearchProblem& problem, const Estimate& estimate);

Contention contention_of(const SearchProblem& problem, const Layout& layout);

}  // namespace mpt::planner
