// SPDX-License-Identifier: Apache-2.0
#pragma once

// OrderBound: a bound from the order of one schedule; StepBounds holds for every order. A search asks for it
// with thousands of costs for one schedule, so the order is kept as counts.

#include <cstdint>
#include <vector>

#include "core/schedule.h"
#include "planner/cost/step_cost.h"

namespace mpt::planner {

class OrderBound {
 public:
  explicit OrderBound(const Schedule& schedule);

  /// Never above the simulated step time. The longest of some paths through the step: a micro-batch comes
  /// forward to one of a rank's stages, the rank does all that stands in its row from there to its last
  /// backward of one of its stages, and from that the gradient goes home to the first stage. Compute advances
  /// at no more than `best_rate`.
  double seconds(const Layout& layout, const StepCost& cost, double best_rate) const;

  /// For the size of a cache.
  size_t bytes() const { return counts_.size() * sizeof(int32_t) + paths_.size() * sizeof(Path); }

 private:
  static constexpr size_t kKinds = 4;  // of actions
  struct Path {
    int32_t rank = 0;
    int32_t from_stage = 0;
    int32_t to_stage = 0;  // -1: to the end of the row
  };
  void add_path(const Schedule& schedule, int rank, size_t from, size_t to, int to_stage);

  /// Of a micro-batch forward to each stage, and of its gradient from each stage home to the first.
  std::vector<double> there_s(const StepCost& cost, double best_rate) const;
  std::vector<double> home_s(const StepCost& cost, double best_rate) const;
  double step_end_s(const Layout& layout, const StepCost& cost, double best_rate) const;
  double work_s(size_t path, const StepCost& cost) const;

  std::vector<int> rank_of_stage_;
  std::vector<std::vector<int>> stages_;  // of each rank
  size_t chunks_ = 1;
  bool has_whole_ = false, has_split_ = false;  // backwards
  std::vector<Path> paths_;
  std::vector<int32_t> counts_;  // of each path: actions by the rank's stages and kinds
};

}  // namespace mpt::planner
