// SPDX-License-Identifier: Apache-2.0
#pragma once

// The one layout that the bounds of a problem name. Estimates price it, and refusals name it.

#include "planner/search/problem.h"

namespace mpt::planner {

/// The layout that the bounds name. Degrees that they leave out are 1, dp takes the remaining ranks, the rest
/// has defaults. Not checked. Throws UserError for degrees and chunks that no layout has.
Layout layout_of_bounds(const SearchProblem& problem);
/// `from` with the values of the bounds that it breaks. On as many ranks, if no bound is on data ranks.
Layout within_bounds(const SearchProblem& problem, const Layout& from);

/// Whether tensor ranks of the framework share sequences, too, unless that is switched off.
bool has_sequence_parallel_by_default(const SearchProblem& problem);

}  // namespace mpt::planner
