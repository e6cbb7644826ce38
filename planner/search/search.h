// SPDX-License-Identifier: Apache-2.0
#pragma once

// Exact search, best first: families of layouts and single layouts wait in one queue ordered by a bound that
// is never above their simulated time. A family at the front is opened, a layout at the front is simulated,
// and what still waits when the bound passes the last one kept cannot be faster. The certificate accounts for
// every layout of the space.

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

/// Layouts of one split (tensor x context x pipeline x data x expert) that fell to memory, with the nearest
/// miss among them.
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
  double bound_s = 0.0;                   // no layout of the space is faster
  std::map<std::string, int64_t> not_dividing;
};

/// What is known during a search.
struct SearchProgress {
  int64_t layouts = 0;  // looked at so far
  double seconds = 0.0;
  double best_s = 0.0;   // infinity before the first layout that fits
  double bound_s = 0.0;  // nothing is faster; 0 while the space is still being listed
};
/// Called now and then; returning false ends the search, as its time limit does.
using OnProgress = std::function<bool(const SearchProgress&)>;

/// The `keep` fastest layouts that fit. Empty `best`: nothing fits, and over_memory says by how much.
SearchResult search(const SearchProblem& problem, size_t keep, const OnProgress& on_progress = {});

}  // namespace mpt::planner
