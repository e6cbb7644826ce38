// SPDX-License-Identifier: Apache-2.0
#pragma once

// Exact search by branch and bound, best first. Nodes of a tree of layouts wait in a frontier, ordered by a
// bound that no layout below them beats. The search expands the first node, or simulates it if it is a leaf.
// It ends when that bound is above the incumbents. The certificate accounts for every layout of the space.
// What a person would try first is priced before, and never lost. docs/search.md explains the tree, the tiers
// of bounds, and how one search also answers for more memory and for other frameworks.

#include "planner/search/search_result.h"

namespace mpt::planner {

/// Counts of the layouts of both, and time one after the other.
void add(SearchCertificate& sum, const SearchCertificate& part);

/// What one search looks for beside the layouts of its problem: the fastest of other sets.
struct Beside {
  const SearchProblem* roomier = nullptr;  // the problem with more memory
  const SearchProblem* beyond = nullptr;   // the problem with other frameworks
  double below = 1.0;                      // share of the best time that a layout beyond must be faster than
  int simplest_kinds = 5;                  // the simplest has at most so many kinds of parallelism
};

/// The best layouts that fit. Empty `best`: nothing fits, and over_memory says by how much.
SearchResult search(const SearchProblem& problem, const ResultLimits& wanted,
                    const OnProgress& on_progress = {}, const Beside& beside = {});

/// The fastest layout within each limit of memory, in bytes of a rank, from one search; of the fastest, the
/// one that needs least. Nothing where none fits. `limits`: ascending; nothing that a smaller one prunes by
/// time is looked at again for a larger. Empty if the search was stopped. For one kind of device.
std::vector<std::optional<Candidate>> search_limits(const SearchProblem& problem,
                                                    std::span<const int64_t> limits,
                                                    const OnProgress& on_progress = {});

/// The layout that the bounds name. Degrees that they leave out are 1, dp takes the remaining ranks, the rest
/// has defaults. Not checked. Throws UserError for degrees and chunks that no layout has.
Layout layout_of_bounds(const SearchProblem& problem);
/// `from` with the values of the bounds that it breaks. On as many ranks, if no bound is on data ranks.
Layout within_bounds(const SearchProblem& problem, const Layout& from);

/// Whether tensor ranks of the framework share sequences, too, unless that is switched off.
bool has_sequence_parallel_by_default(const SearchProblem& problem);

}  // namespace mpt::planner
