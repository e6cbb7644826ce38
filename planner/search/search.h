// SPDX-License-Identifier: Apache-2.0
#pragma once

// Exact search: estimate every layout, simulate in the order of the lower bound, stop when the bound passes
// what was found. The certificate accounts for every layout of the space.

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

/// Layouts of one split (tensor x pipeline x data) that fell to memory, with the nearest miss among them.
struct MemoryFamily {
  std::string name;
  int64_t count = 0;
  Rejection nearest;
  Layout layout;
};

struct SearchResult {
  std::vector<Candidate> best;  // fastest first; at most `keep`
  SearchCertificate certificate;
  std::vector<MemoryFamily> over_memory;  // those with the nearest misses, nearest first
  int64_t more_over_memory = 0;           // families that over_memory leaves out
  std::map<std::string, int64_t> not_dividing;
};

/// The `keep` fastest layouts that fit. Empty `best`: nothing fits, and over_memory says by how much.
SearchResult search(const SearchProblem& problem, size_t keep);

}  // namespace mpt::planner
