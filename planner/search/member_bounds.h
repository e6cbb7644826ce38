// SPDX-License-Identifier: Apache-2.0
#pragma once

// MemberBounds: the bounds of a family's members, each price worked out once. Members that differ in schedule
// or in how recompute is named have the same costs.

#include <optional>
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

/// Stages of members by MemberList::division_of_member, as far as they were asked for; null for twins. The
/// same in all families that differ in sharding alone.
using StagesByDivision = std::vector<std::optional<const StageKinds*>>;

class MemberBounds {
 public:
  /// Of all members of the family of `layout`, or, without what comes behind the micro-batches, of all
  /// families that differ from it in sharding alone. All must outlive this. `stages`: empty or of such a
  /// family.
  MemberBounds(const SearchProblem& problem, LayoutResolver& resolver, const Layout& layout,
               const MemberList& list, StagesByDivision& stages,
               StepPricer::Part part = StepPricer::Part::whole_step);

  /// Of a member of the list; nothing for a twin.
  std::optional<double> bound_s(size_t member);
  /// Of a member whose bound was asked for.
  const StageKinds& stages(size_t member) const { return **stages_[list_.division_of_member[member]]; }

 private:
  struct Price {
    bool known = false, twin = false;
    StepBounds bounds;
  };
  Price price(size_t member);

  LayoutResolver& resolver_;
  const Layout& layout_;
  const MemberList& list_;
  StagesByDivision& stages_;
  const SharedSplit split_;
  const DeviceCosts devices_;
  StepPricer pricer_;
  const int64_t micro_batches_;
  const Contention::Best best_rate_;
  std::vector<Price> prices_;
  KindCosts cost_;  // of the member that was priced last
};

/// Bounds of a layout whose recompute is fitted, of its first rank as soon as that one is.
class FittedBounds {
 public:
  /// `layout`: with full recompute, and `stages`. All must outlive this.
  FittedBounds(const SearchProblem& problem, const SplitModel& split, const Layout& layout,
               const StageKinds& stages);

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
  const DeviceCosts devices_;
};

}  // namespace mpt::planner
