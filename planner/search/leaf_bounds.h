// SPDX-License-Identifier: Apache-2.0
#pragma once

// Bounds of leaves, each price worked out once. Leaves that differ only in schedule, or in how recompute is
// named, have the same costs.

#include <functional>
#include <optional>
#include <variant>
#include <vector>

#include "core/plan.h"
#include "planner/cost/step_pricer.h"
#include "planner/search/layout_resolver.h"
#include "planner/search/leaf_memory.h"

namespace mpt::planner {

/// Bounds of the micro-batches alone. They are the same for all children of a node of degrees, which differ
/// in sharding.
class DegreesBounds {
 public:
  /// `runners`: frameworks that take the degrees. `too_slow`: whether a leaf needs no better bound. All but
  /// that must outlive this.
  DegreesBounds(const SearchProblem& problem, LayoutResolver& resolver, const Layout& degrees,
                const LeafList& list, Runners runners, const std::function<bool(const Leaf&)>& too_slow);

  /// Empty until it is priced. bound: the leaf is too slow. duplicate: its balanced stages are those of a
  /// simpler split.
  using Price = std::variant<std::monostate, PruneReason, MicroBatchBounds>;
  const Price& price(size_t leaf) const { return prices_[list_.price_of_leaf[leaf]]; }
  /// No leaf is faster, however it is sharded; infinity where none is priced.
  double least_s() const { return least_s_; }
  const StageKinds& stages(size_t leaf) const { return *stages_[list_.division_of_leaf[leaf]]; }

 private:
  const LeafList& list_;
  std::vector<Price> prices_;
  std::vector<const StageKinds*> stages_;  // by division; null where no leaf asked for them
  double least_s_ = std::numeric_limits<double>::infinity();
};

/// The leaves of one sharding node, one after the other. Bounds are of the whole step, and only of leaves
/// that the bounds of their degrees do not prune.
class LeafBounds : public Probe {
 public:
  /// `node`: of sharding. `makes_schedules`: as in LeafMemory. All must outlive this.
  LeafBounds(const SearchProblem& problem, LayoutResolver& resolver, const Layout& node, const LeafList& list,
             const DegreesBounds& degrees, bool makes_schedules);

  /// The leaf that what follows is about.
  void select(size_t leaf) {
    leaf_ = leaf;
    price_ = &degrees_.price(leaf);
  }
  bool recompute_is_too_slow(double) const { return pruned_for(PruneReason::bound); }
  bool is_duplicate(double = 0.0) const { return pruned_for(PruneReason::duplicate); }
  bool micro_batches_are_too_slow(double incumbent_s) { return (last_bound_s_ = least_s()) > incumbent_s; }
  bool is_too_large(double) { return (fits_ = memory_fits()) == LeafMemory::Fits::no; }
  bool step_is_too_slow(double incumbent_s) { return (last_bound_s_ = bound_s()) > incumbent_s; }

  /// Of a step that hides all it can of what sharding adds: never above bound_s(), and far cheaper.
  double least_s();
  double bound_s();
  bool may_fit(const SearchProblem& roomier) const {
    return memory_.may_fit(roomier, leaf_, degrees_.stages(leaf_));
  }
  LeafMemory::Fits memory_fits() { return memory_.fits(leaf_, degrees_.stages(leaf_)); }
  /// The bound that the last tier asked for.
  double last_bound_s() const { return last_bound_s_; }
  bool surely_fits() const { return fits_ == LeafMemory::Fits::yes; }

 private:
  bool pruned_for(PruneReason reason) const {
    const auto* pruned = std::get_if<PruneReason>(price_);
    return pruned != nullptr && *pruned == reason;
  }

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
  LeafMemory memory_;
  size_t leaf_ = 0;
  const DegreesBounds::Price* price_ = nullptr;  // of that leaf
  double last_bound_s_ = 0.0;
  LeafMemory::Fits fits_ = LeafMemory::Fits::unknown;
};

}  // namespace mpt::planner
