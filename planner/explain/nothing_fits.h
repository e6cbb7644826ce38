// SPDX-License-Identifier: Apache-2.0
#pragma once

// The error of a search that found no layout: which rule or how many bytes are in the way.

#include "base/error.h"
#include "planner/search/search.h"

namespace mpt::planner {

/// What is in the way. The remedy is what helps in general: a caller that has tried one knows better.
Problem why_nothing_fits(const SearchResult& result, const SearchProblem& problem);

}  // namespace mpt::planner
