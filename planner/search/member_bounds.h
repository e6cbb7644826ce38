// SPDX-License-Identifier: Apache-2.0
#pragma once

// MemberBounds: the bounds of a family's members, each price worked out once. Members that differ in schedule
// or in how recompute is named have the same costs.

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "planner/cost/step_pricer.h"
#include "planner/search/layout_resolver.h"

namespace mpt::planner {

/// The members of families of one pipeline and number of micro-batches, and which of them cost the same.
struct MemberList {
  explicit MemberList(std::vector<Member> members);
  std::vector<Member> members;
  std::vector<uint16_t> price_of_member;
  std::vector<uint16_t> division_of_member;  // into stages, and how they are placed
  size_t prices = 0, divisions = 0;
};

/// What members take for their micro-batches alone: the same in all families of a group, which differ in
/// sharding.
class GroupBounds {
 public:
  using IsTooSlow = std::function<bool(const Member&)>;
  /// `too_slow`: of members that need no better bound. All but that must outlive this.
  GroupBounds(const SearchProblem& problem, LayoutResolver& resolver, const Layout& group,
              const MemberList& list, const IsTooSlow& too_slow);

  bool too_slow(size_t member) const {
    return prices_[list_.price_of_member[member]].known == Known::too_slow;
  }
  bool twin(size_t member) const { return prices_[list_.price_of_member[member]].known == Known::twin; }
  /// Of members that are neither.
  const MicroBatchBounds& micro_batches_s(size_t member) const {
    return prices_[list_.price_of_member[member]].bounds;
  }
  const StageKinds& stages(size_t member) const { return *stages_[list_.division_of_member[member]]; }

 private:
  enum class Known : uint8_t { no, too_slow, twin, priced };
  struct Price {
    Known known = Known::no;
    MicroBatchBounds bounds;
  };

  const MemberList& list_;
  std::vector<Price> prices_;
  std::vector<const StageKinds*> stages_;  // by division; null where no member asked for them
};

/// Bounds of the members of one family that are neither too slow nor twins in its group.
class MemberBounds {
 public:
  /// `layout`: of the family. All must outlive this.
  MemberBounds(const SearchProblem& problem, LayoutResolver& resolver, const Layout& layout,
               const MemberList& list, const GroupBounds& group);

  /// Of a step that hides all it can of what sharding adds: never above bound_s(), and far cheaper.
  double least_s(size_t member);
  double bound_s(size_t member);

 private:
  const MemberList& list_;
  const GroupBounds& group_;
  const Layout& layout_;
  const SharedSplit split_;
  const DeviceCosts devices_;
  LayoutResolver::KnownSharding& known_;
  StepPricer pricer_;
  const int64_t micro_batches_;
  const Contention::Best best_rate_;
  std::vector<const RestOfStep*> rest_;            // by division
  std::vector<std::optional<StepBounds>> bounds_;  // by price
  KindCosts cost_;                                 // of the member that was priced last
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
