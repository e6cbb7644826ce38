// SPDX-License-Identifier: Apache-2.0
#pragma once

// Why a search has no layout, and the remedy. Why a part of the space did not win: by which rule, by how many
// bytes, by how many seconds, or because the search was not allowed to choose it.

#include <functional>

#include "base/error.h"
#include "core/bound_words.h"
#include "planner/search/problem.h"
#include "planner/search/search_result.h"

namespace mpt::planner {

/// The values in the remedy were tested: layouts with them exist. Throws UserError for bounds that are
/// invalid by themselves.
Problem nothing_divides(const SearchProblem& problem);

/// "--global-batch 96 or --global-batch 104": the nearest multiples of `unit`, or of its multiples that
/// divide `most`, for which `divides` is true; empty if there are none.
std::string nearest_batches(int64_t batch, int64_t unit, int64_t most,
                            const std::function<bool(int64_t)>& divides);

/// The bounds that the user typed; then the problem with other bounds instead of them.
std::vector<BoundWords> asked_bounds(const SearchProblem& problem);
SearchProblem bounded(SearchProblem problem, std::vector<BoundWords> words);

/// Whether any layout has the problem's bounds; memory is ignored.
bool has_layouts(const SearchProblem& problem);

/// "8 GPUs", "1 rank".
std::string counted_devices(int64_t count, const SearchProblem& problem);

/// The obstacle. Its remedy is a general one; a caller that has tried remedies can give a better one.
Problem why_nothing_fits(const SearchResult& result, const SearchProblem& problem);

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
