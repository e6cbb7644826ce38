// SPDX-License-Identifier: Apache-2.0
#pragma once

// Bounds of inner nodes: what holds for every layout below a node, before any of them is looked at.

#include <array>

#include "planner/search/split_model.h"

namespace mpt::planner {

struct InnerBound : Probe {
  double bound_s = 0.0;             // no layout below the node is faster
  double step_end_s = 0.0;          // the part of it that follows the micro-batches, whatever those take
  double floor_bytes = 0.0;         // none needs less on its fullest rank
  double memory_limit_bytes = 0.0;  // of the largest device

  bool is_too_large(double = 0.0) const { return floor_bytes > memory_limit_bytes; }
  bool is_too_slow(double incumbent_s) const { return bound_s > incumbent_s; }
};

/// Of a sharding node. Time: all layers' work without recompute, shared evenly over the ranks. A rank further
/// down waits on the average for half the pipeline, one layer per stage at best. Layers are whole, so that
/// some rank holds more than an even share. To that come what ZeRO adds, hidden as well as possible, and the
/// optimizer over an even share. Memory: an even share of the parameters' state, and one layer's activations.
InnerBound sharding_bound(const SearchProblem& problem, const Layout& node, const SplitModel& split);

/// Of a node of degrees: ZeRO adds nothing, and the optimizer and the state are shared out as far as
/// possible. Without a time where memory rules the node out.
InnerBound degrees_bound(const SearchProblem& problem, const Layout& node, const SplitModel& split);

/// Of the leaves below a node of degrees, before they are priced: micro-batches alone.
class UnpricedBounds {
 public:
  UnpricedBounds(const SearchProblem& problem, const Layout& degrees, const SplitModel& split);
  /// No layout that recomputes so, or more, in so many chunks is faster.
  double bound_s(Recompute recompute, int64_t chunks) const {
    return of_one_chunk_s_[size_t(recompute)] + double(chunks - 1) * launches_s_;
  }

 private:
  std::array<double, 3> of_one_chunk_s_{};  // by Recompute
  double launches_s_ = 0.0;                 // of every micro-batch, there and back, on one chunk
};

}  // namespace mpt::planner
