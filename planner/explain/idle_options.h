// SPDX-License-Identifier: Apache-2.0
#pragma once

// Options that were given and change nothing, for a note: somebody expects something of them.

#include <string>
#include <vector>

#include "core/layout.h"
#include "planner/search/problem.h"

namespace mpt::planner {

/// A sentence for each, of one layout that was asked for.
std::vector<std::string> idle_options(const PlanRequest& request, const SearchProblem& problem,
                                      const Layout& layout);
/// Of a search that found `best`: those that no layout within the bounds has a use for, and ZeRO where `best`
/// has nothing to share out.
std::vector<std::string> idle_of_search(const PlanRequest& request, const SearchProblem& problem,
                                        const Layout& best);

}  // namespace mpt::planner
