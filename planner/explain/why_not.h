// SPDX-License-Identifier: Apache-2.0
#pragma once

// Why a part of the space did not win: by which rule, by how many bytes, by how many seconds, or because the
// search was not allowed to take it. Each answer closes with what would change it, as far as it can be
// computed.

#include <string>

#include "planner/search/search.h"

namespace mpt::planner {

struct Question {
  const Plan& plan;
  SearchProblem part;    // the plan's problem, limited to the layouts that are asked for
  SearchBounds allowed;  // what the plan's own search was limited to
  // The same part on links that are `kFasterLinks` times as fast; null where links have no prices.
  const SearchProblem* faster_links = nullptr;
};
inline constexpr int kFasterLinks = 4;

/// `chosen`: the plan's layout, evaluated in the same problem. Text of a few lines; never fails.
std::string why_not(const Question& question, const Candidate& chosen);

}  // namespace mpt::planner
