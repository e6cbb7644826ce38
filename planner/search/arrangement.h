// SPDX-License-Identifier: Apache-2.0
#pragma once

// Mixed clusters. An Arrangement says which groups of devices are used and in which order ranks are numbered
// over them, and so which stages lie where: each is a search problem of its own, and the best of all is the
// answer.

#include <memory>
#include <string>
#include <vector>

#include "planner/search/search.h"

namespace mpt::planner {

/// Prices and limits of a mixed cluster's groups; empty for a cluster of one kind.
class Pools {
 public:
  /// `limits`: what a rank of each group may use.
  Pools(const ClusterSpec& cluster, const Execution& execution, const std::vector<int64_t>& limits);
  Pools(const Pools&) = delete;

  /// Makes the problem price and bound each group by itself.
  void set(SearchProblem& problem) const;

 private:
  std::vector<std::unique_ptr<ClusterSpec>> views_;
  std::vector<std::unique_ptr<CostSource>> sources_;
  std::vector<DevicePool> pools_;
};

/// The problem with all that its ranks can use, without a margin or a limit that was asked for.
SearchProblem without_margin(SearchProblem problem);
/// The problem with limits between those of two others: `share` 0 has those of `least`, 1 those of `most`.
SearchProblem with_limits_between(const SearchProblem& least, const SearchProblem& most, double share);

struct ArrangedSearch {
  SearchResult result;
  SearchProblem problem;           // the arrangement that the best layout belongs to
  std::vector<std::string> notes;  // what the other arrangements reach
  std::string left_out;            // groups that the best leaves idle, and what using all would take
  std::unique_ptr<CostSource> cost;
  std::unique_ptr<Pools> pools;
};

/// Every selection and order of the problem's groups, the most devices first. The certificate counts the
/// layouts of all. A problem of one kind of device is searched as it is. `beside.roomier`: any problem asks
/// for without_margin() of each arrangement.
std::unique_ptr<ArrangedSearch> search_arrangements(const SearchProblem& problem, const ResultLimits& wanted,
                                                    const OnProgress& on_progress = {},
                                                    const Beside& beside = {});

}  // namespace mpt::planner
