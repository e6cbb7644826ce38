// SPDX-License-Identifier: Apache-2.0
#include "planner/search/complete_leaf.h"

namespace mpt::planner {
const StepCost& CompleteLeaf::cost() {
  if (!cost_) cost_ = resolver_.cost(layout_, leaf_);
  return *cost_;
}

const std::vector<StageFootprint>& CompleteLeaf::footprints() {
  if (!footprints_) footprints_ = resolver_.footprints(layout_);
  return *footprints_;
}

const std::optional<MadeSchedule>& CompleteLeaf::made(double incumbent_s) {
  if (!made_)
    made_ = make_to_measure(problem_, layout_, footprints(), cost(), resolver_.programs(), incumbent_s);
  return *made_;
}

bool CompleteLeaf::peak_is_too_large(double) {
  const bool fits =
      fits_ || generated_ || resolver_.peaks(layout_)->fit(footprints(), limits_of_ranks(problem_, layout_));
  return !fits || host_rejection(problem_, layout_);
}

bool CompleteLeaf::path_is_too_slow(double incumbent_s) {
  if (generated_) return false;
  const double best_rate = contention_of(problem_, layout_).best(layout_.pipeline).of_one;
  return resolver_.slow_paths(layout_).take_longer_than(incumbent_s, cost(), best_rate);
}

bool CompleteLeaf::no_schedule_fits(double incumbent_s) { return generated_ && !made(incumbent_s); }

// A named schedule that is as good is in the space under its own name.
bool CompleteLeaf::schedule_is_duplicate(double incumbent_s) {
  if (!generated_) return false;
  const std::string& name = made(incumbent_s)->schedule->name;
  return name != layout_.schedule && allowed(problem_.bounds.schedules, name);
}

std::optional<Incumbent> CompleteLeaf::simulate(double incumbent_s, SimulatedStep& step) {
  Incumbent found{kInfinity, 0, {}};
  if (generated_) {
    found.step_time_s = made(incumbent_s)->step_time_s;
    found.peak_bytes = made(incumbent_s)->peak_bytes;
  } else {
    const std::vector<int64_t> peaks = resolver_.peaks(layout_)->peak_bytes(footprints());
    found.peak_bytes = *std::max_element(peaks.begin(), peaks.end());
    resolver_.programs().simulate({layout_, micro_batches(layout_, problem_.workload),
                                   models::trains_shared_table(problem_.model, layout_), cost(),
                                   contention_of(problem_, layout_), incumbent_s},
                                  step);
    found.step_time_s = step.step_time_s;
    if (found.step_time_s > incumbent_s)
      resolver_.slow_paths(layout_).add(*step.program, step.timeline, step.more_micro_batches);
  }
  if (found.step_time_s > incumbent_s) return std::nullopt;
  found.layout = layout_;
  return found;
}

}  // namespace mpt::planner
