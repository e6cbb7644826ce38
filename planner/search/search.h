// SPDX-License-Identifier: Apache-2.0
#pragma once

// Exact search: estimate every layout, simulate in the order of the lower bound, stop when the bound passes
// what was found. The certificate accounts for every layout of the space.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/plan.h"
#include "planner/search/evaluate.h"
#include "planner/search/space.h"

namespace mpt::planner {

struct Candidate {
  Estimate estimate;
  Evaluation evaluation;
};

/// Layouts that fell to memory, by tensor degree, pipeline degree and recompute, with the nearest miss of
/// each.
struct MemoryFamily {
  int64_t count = 0;
  Rejection nearest;
  Layout layout;
};

struct SearchResult {
  std::vector<Candidate> best;  // fastest first; at most `keep`
  SearchCertificate certificate;
  std::map<std::string, MemoryFamily> over_memory;  // by family name
  std::map<std::string, int64_t> not_dividing;
};

/// The `keep` fastest layouts that fit. Empty `best`: nothing fits, and over_memory says by how much.
SearchResult search(const SearchProblem& problem, size_t keep);

}  // namespace mpt::planner
