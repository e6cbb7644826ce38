// SPDX-License-Identifier: Apache-2.0
#pragma once

// Bound tiers: the tests that can prune a node, in order of price. tiers() is the one list of them.

#include <span>

#include "core/plan.h"
#include "planner/search/node.h"
#include "planner/search/problem.h"

namespace mpt::planner {

struct Tier {
  const char* name;
  Level level;  // of the nodes that it tests
  PruneReason reason;
  /// Whether the node falls. `incumbent_s`: nothing slower is of interest. Null: of the last tier.
  bool (*prunes)(Probe& node, double incumbent_s);
};

inline constexpr size_t kTiers = 17;
/// In the order in which a layout meets them; a later one costs more. The last one prunes at once all nodes
/// that are in the frontier when the search ends.
std::span<const Tier, kTiers> tiers();
/// Those that test the nodes of a level.
std::span<const Tier> tiers_of(Level level);

}  // namespace mpt::planner
