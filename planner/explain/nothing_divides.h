// SPDX-License-Identifier: Apache-2.0
#pragma once

// Why a search has no layout at all, whatever memory there is: of the values that were asked for, the fewest
// that no layout has together, the rule between them, and values that layouts have.

#include "base/error.h"
#include "planner/search/problem.h"

namespace mpt::planner {

/// Values that the remedy names were looked for: with them there are layouts. Throws UserError for bounds
/// that say nothing by themselves.
Problem nothing_divides(const SearchProblem& problem);

/// Whether any layout has the problem's bounds; memory is not looked at.
bool has_layouts(const SearchProblem& problem);

/// "8 GPUs", "1 rank".
std::string counted_devices(int64_t count, const SearchProblem& problem);

}  // namespace mpt::planner
