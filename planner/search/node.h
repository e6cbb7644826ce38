// SPDX-License-Identifier: Apache-2.0
#pragma once

// The tree of the search. Its root is the whole space; each level fixes more of a layout (docs/search.md).

#include <cstdint>
#include <tuple>

#include "planner/search/leaves.h"

namespace mpt::planner {

/// Which choices a node has made.
/// degrees: all degrees, micro-batch, order of ranks, sequence parallelism and method of context parallelism.
/// sharding: ZeRO stage, its ranks and offload, too.
/// leaf: everything, when its parent is expanded.
/// open_recompute: a leaf in the frontier, before its number of recomputed layers is chosen.
/// complete: a leaf in the frontier, ready to be simulated. A generated schedule is made then.
/// frontier: whatever waits when the search ends.
enum class Level : uint8_t { degrees, sharding, leaf, open_recompute, complete, frontier };

/// A node of sharding or below.
struct Node {
  double bound_s = 0.0;     // no layout below it is faster
  double step_end_s = 0.0;  // of a sharding node: as in InnerBound
  uint32_t degrees = 0;     // its ancestor
  uint16_t sharding = 0;    // index into shardings_of() that ancestor
  Level level = Level::sharding;
  bool fits = false;    // memory is known to suffice
  Runners runners = 1;  // of a sharding node: frameworks that take it
  Leaf leaf;
  int32_t fitted = -1;  // index of its recomputed layers, where they were fitted

  /// Order of the frontier: the top of a heap has the lowest bound. Of equal ones the deepest and then the
  /// first of the space: libraries differ in what their heaps do with equals, and counts follow the order.
  bool operator<(const Node& other) const {
    if (bound_s != other.bound_s) return bound_s > other.bound_s;
    const auto place = [](const Node& n) {
      return std::tuple(-int(n.level), n.degrees, n.sharding, n.leaf.schedule, n.leaf.chunks, n.leaf.split,
                        n.leaf.recompute, n.fitted, n.fits);
    };
    return place(*this) > place(other);
  }
};

}  // namespace mpt::planner
