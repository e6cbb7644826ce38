// SPDX-License-Identifier: Apache-2.0
#pragma once

// The limits of a search, its progress and its result.

#include <functional>
#include <optional>
#include <span>
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

/// Layouts of one split (tensor x context x pipeline x data x expert) that do not fit, with the nearest miss
/// among them.
struct NearMiss {
  std::string name;
  int64_t count = 0;
  Rejection nearest;
  Layout layout;
};

/// How many of the best layouts a search keeps: the `fastest`, and those that take at most the share
/// `equal_share` longer than the first, up to `equals` in all. Fewer are found sooner. Where equals are
/// wanted, the one with the fewest kinds of parallelism is told first, then the roomiest; and none is told
/// that recomputes or offloads more than another of those kept for nothing.
struct ResultLimits {
  size_t fastest = 1;
  size_t equals = 0;
  double equal_share = 0.0;

  ResultLimits(size_t n) : fastest(n) {}  // NOLINT(google-explicit-constructor): a number wants that many
  ResultLimits(size_t n, size_t equals, double equal_share)
      : fastest(n), equals(equals), equal_share(equal_share) {}

  /// `times`: of the layouts found so far, ascending. So many of them, from the first, are wanted.
  size_t count(std::span<const double> times) const;
  /// No slower layout is wanted; infinity while there are too few. `gap`: of the problem.
  double most_s(std::span<const double> times, double gap) const;
};

struct SearchResult {
  std::vector<Candidate> best;        // fastest first, but for the simplest of equals
  std::vector<Candidate> roomier;     // where faster than `best`: fastest first
  std::optional<Candidate> beyond;    // where it is faster than `best`
  std::optional<Candidate> simplest;  // nothing where the first of `best` is as simple
  SearchCertificate certificate;
  std::vector<NearMiss> over_memory;  // the nearest ones, nearest first
  int64_t more_over_memory = 0;       // splits that over_memory leaves out
  double bound_s = 0.0;               // no layout of the space is faster
  NotDividing not_dividing;
};

/// Counts during a search.
struct SearchProgress {
  int64_t layouts = 0;  // looked at so far
  double seconds = 0.0;
  double best_s = 0.0;   // infinity before the first layout that fits
  double bound_s = 0.0;  // nothing is faster; 0 while the space is still being listed
};
/// Called now and then; returning false ends the search, as its time limit does.
using OnProgress = std::function<bool(const SearchProgress&)>;

}  // namespace mpt::planner
