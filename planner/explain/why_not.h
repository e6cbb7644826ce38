// SPDX-License-Identifier: Apache-2.0
#pragma once

// Why a part of the space did not win: by which rule, by how many bytes, by how many seconds, or because the
// search was not allowed to choose it. Each answer ends with a change that would help, if one can be
// computed.

#include <string>

#include "planner/search/search_result.h"

namespace mpt::planner {

struct Question {
  const Plan& plan;
  SearchProblem part;    // the plan's problem, limited to the given layouts
  SearchBounds allowed;  // bounds of the plan's search
  // The same part with links `kFasterLinks` times as fast; null if links have no prices.
  const SearchProblem* faster_links = nullptr;
};
inline constexpr int kFasterLinks = 4;

/// `chosen`: the plan's layout, evaluated in the same problem. Text of a few lines; never fails.
std::string why_not(const Question& question, const Candidate& chosen);

}  // namespace mpt::planner
