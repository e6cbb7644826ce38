// SPDX-License-Identifier: Apache-2.0
#pragma once

// SlowPaths: what made simulated steps too slow. A step takes no less than any path through its program,
// whatever the durations are; so the critical path of one layout is a bound of all others with that program.

#include <cstdint>
#include <vector>

#include "core/step_program.h"
#include "core/timeline.h"
#include "planner/cost/step_cost.h"

namespace mpt::planner {

class SlowPaths {
 public:
  /// The path that made the timeline's last instruction as late as it is, and all that its rank computes
  /// after that. `more`: of a step with so many micro-batches beyond the program's, as in critical_path().
  void add(const StepProgram& program, const Timeline& timeline, int64_t more = 0);
  /// Whether a path that is known takes longer than that. Compute advances at no more than `best_rate`.
  bool take_longer_than(double limit_s, const StepCost& cost, double best_rate);

 private:
  struct Term {
    int32_t stage = 0, count = 0;
    InstructionKind kind = InstructionKind::forward;
  };
  std::vector<std::vector<Term>> paths_;  // the one that was of use last first
};

}  // namespace mpt::planner
