// SPDX-License-Identifier: Apache-2.0
#pragma once

// Bounds of leaves, each price worked out once. Leaves that differ only in schedule, or in how recompute is
// named, have the same costs.

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "planner/cost/step_pricer.h"
#include "planner/search/layout_resolver.h"

namespace mpt::planner {

/// The leaves of all nodes with one pipeline and number of micro-batches, and which of them cost the same.
struct LeafList {
  explicit LeafList(std::vector<Leaf> leaves);
  std::vector<Leaf> leaves;
  std::vector<uint16_t> price_of_leaf;
  std::vector<uint16_t> division_of_leaf;  // into stages, and how they are placed
  size_t prices = 0, divisions = 0;
};

/// Bounds of the micro-batches alone. They are the same for all children of a node of degrees, which differ
/// in sharding.
class DegreesBounds {
 public:
  /// `too_slow`: whether a leaf needs no better bound. All but that must outlive this.
  DegreesBounds(const SearchProblem& problem, LayoutResolver& resolver, const Layout& degrees,
                const LeafList& list, const std::function<bool(const Leaf&)>& too_slow);

  bool too_slow(size_t leaf) const { return price(leaf).state == State::too_slow; }
  bool duplicate(size_t leaf) const { return price(leaf).state == State::duplicate; }
  /// Of leaves that are neither.
  const MicroBatchBounds& micro_batches_s(size_t leaf) const { return price(leaf).bounds; }
  const StageKinds& stages(size_t leaf) const { return *stages_[list_.division_of_leaf[leaf]]; }

 private:
  enum class State : uint8_t { unpriced, too_slow, duplicate, priced };
  struct Price {
    State state = State::unpriced;
    MicroBatchBounds bounds;
  };
  const Price& price(size_t leaf) const { return prices_[list_.price_of_leaf[leaf]]; }

  const LeafList& list_;
  std::vector<Price> prices_;
  std::vector<const StageKinds*> stages_;  // by division; null where no leaf asked for them
};

/// Bounds of the whole step, of those leaves of one sharding node that are neither too slow nor duplicates by
/// the bounds of its degrees.
class LeafBounds {
 public:
  /// `node`: of sharding. All must outlive this.
  LeafBounds(const SearchProblem& problem, LayoutResolver& resolver, const Layout& node, const LeafList& list,
             const DegreesBounds& degrees);

  /// Of a step that hides all it can of what sharding adds: never above bound_s(), and far cheaper.
  double least_s(size_t leaf);
  double bound_s(size_t leaf);

 private:
  const LeafList& list_;
  const DegreesBounds& degrees_;
  const Layout& node_;
  const SplitModel& split_;
  const DeviceCosts devices_;
  ShardingPrices& sharding_;
  StepPricer pricer_;
  const int64_t micro_batches_;
  const Contention::Best best_rate_;
  std::vector<const RestOfStep*> rest_;            // by division
  std::vector<std::optional<StepBounds>> bounds_;  // by price
  KindCosts cost_;                                 // of the leaf that was priced last
};

/// Bounds of a layout whose recompute is fitted, of its first rank as soon as that one is.
class FittedBounds {
 public:
  /// `layout`: with full recompute, and `stages`. `states`: of layouts sharded alike. All must outlive this.
  FittedBounds(const SearchProblem& problem, const SplitModel& split, const Layout& layout,
               const StageKinds& stages, StateCosts& states);

  /// Of the first rank alone, its layers recomputed as said of each stage: never above that of the layout.
  double first_rank_s(std::span<const int64_t> recomputed_layers) const;
  /// Of the layout, which by now says how many layers recompute.
  double bound_s() const;

 private:
  double bound_s(const StageKinds& stages) const;

  const SearchProblem& problem_;
  const SplitModel& split_;
  const Layout& layout_;
  const StageKinds& stages_;
  StateCosts& states_;
  const DeviceCosts devices_;
};

}  // namespace mpt::planner
