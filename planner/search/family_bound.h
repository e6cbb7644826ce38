// SPDX-License-Identifier: Apache-2.0
#pragma once

// What holds for every member of a family before any of them is looked at.

#include "planner/search/evaluate.h"
#include "planner/search/space.h"

namespace mpt::planner {

struct FamilyBound {
  double bound_s = 0.0;      // no member's bound is below
  double floor_bytes = 0.0;  // no member needs less on its fullest rank
};

/// Time: all layers' work without recompute, shared evenly over the ranks; a rank further down waits on the
/// average for half the pipeline, one layer per stage at best; and layers are
/// whole, so that some rank holds more than an even share; what ZeRO adds, hidden as well as can be; then
/// the optimizer over an even share. Memory: an even share of the parameters' state, and one layer's
/// activations.
FamilyBound family_bound(const SearchProblem& problem, const Family& family, const SplitModel& split);

/// The same for all families of a group: ZeRO adds nothing, the optimizer and the state are shared out as far
/// as can be. Without a time where memory rules them out.
FamilyBound group_bound(const SearchProblem& problem, const Layout& group, const SplitModel& split);

/// Of all members of a group that recompute so: micro-batches alone.
double recompute_bound_s(const SearchProblem& problem, const Layout& group, const SplitModel& split,
                         Recompute recompute);

/// Launching of one instruction, of the devices that are quickest at it.
double least_dispatch_s(const SearchProblem& problem);

}  // namespace mpt::planner
