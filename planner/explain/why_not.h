// SPDX-License-Identifier: Apache-2.0
#pragma once

// Why a part of the space did not win: by which rule, by how many bytes, or by how many seconds.

#include <string>

#include "planner/search/search.h"

namespace mpt::planner {

/// `part`: the problem limited to the layouts that are asked for. `chosen`: the plan's layout, evaluated in
/// the same problem. Text of a few lines; never fails.
std::string why_not(const SearchProblem& part, const Candidate& chosen);

}  // namespace mpt::planner
