// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is inside a forward or backward, for people: the operators of each piece of the model, and the
// collectives beside them.

#include <string>
#include <vector>

#include "planner/cost/operator_times.h"
#include "planner/search/problem.h"

namespace mpt::planner {

/// Those that the model has, in its order, on the cluster's first kind of device.
std::vector<PieceTimes> operator_times(const SearchProblem& problem, const Layout& layout);

/// A table of each piece's operators. Where the layout recomputes only some layers: of one that does.
std::string describe_operators(const SearchProblem& problem, const Layout& layout);

}  // namespace mpt::planner
