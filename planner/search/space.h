// SPDX-License-Identifier: Apache-2.0
#pragma once

// The inner nodes of the search tree. A node of degrees fixes all degrees, the micro-batch and the order of
// ranks. A node of sharding adds ZeRO and offload: all layouts below it share the price of every layer. Both
// are layouts with an empty layers_per_stage. leaves.h has the level below.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/ranges.h"
#include "frameworks/supports/supports.h"
#include "planner/search/problem.h"

namespace mpt::planner {

/// Rules that fail, and how often each ruled something out.
using NotDividing = std::map<std::string, int64_t>;

using Sharding = frameworks::Sharing;

/// Whether the bounds of a search leave a value; empty bounds leave all.
template <class T>
bool allowed(const std::vector<T>& bound, const T& value) {
  return bound.empty() || contains(bound, value);
}
inline bool allowed(const std::vector<Switch>& bound, bool value) {
  return allowed(bound, value ? Switch::on : Switch::off);
}

/// Gets a node of degrees and its children, of which it has at least one.
using VisitDegrees = std::function<void(const Layout&, const std::vector<Sharding>&)>;
/// Part of a space that is listed: every `of`-th pair of tensor and context degrees, whose prices layouts
/// share most, until `stopped` is true.
struct ListedPart {
  size_t index = 0, of = 1;
  std::function<bool()> stopped = [] { return false; };
};
/// Calls `visit` with every node of degrees that has a child; those of one split follow each other. There may
/// be hundreds of thousands.
void visit_degrees(const SearchProblem& problem, const ListedPart& part, const VisitDegrees& visit,
                   NotDividing& not_dividing);
std::vector<Sharding> shardings_of(const SearchProblem& problem, const Layout& degrees);
Layout with_sharding(const Layout& degrees, const Sharding& sharding);

std::vector<int64_t> divisors(int64_t value);

}  // namespace mpt::planner
