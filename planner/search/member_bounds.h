// SPDX-License-Identifier: Apache-2.0
#pragma once

// MemberBounds: the bounds of a family's members, each price worked out once. Members that differ in schedule
// or in how recompute is named have the same costs.

#include <vector>

#include "planner/cost/step_pricer.h"
#include "planner/search/layout_resolver.h"

namespace mpt::planner {

/// The members of families of one pipeline and number of micro-batches, and which of them cost the same.
struct MemberList {
  explicit MemberList(std::vector<Member> members);
  std::vector<Member> members;
  std::vector<uint16_t> price_of_member;
  size_t prices = 0;
};

class MemberBounds {
 public:
  /// Of all members of the family of `layout`, or, without what comes behind the micro-batches, of all
  /// families that differ from it in sharding alone. All must outlive this.
  MemberBounds(const SearchProblem& problem, LayoutResolver& resolver, const Layout& layout,
               const MemberList& list, StepPricer::Part part = StepPricer::Part::whole_step);

  /// Of a member of the list; nothing for a twin.
  std::optional<double> bound_s(size_t member);

 private:
  struct Price {
    bool known = false, twin = false;
    StepBounds bounds;
  };
  Price price(const Member& member);

  LayoutResolver& resolver_;
  const Layout& layout_;
  const MemberList& list_;
  const SharedSplit split_;
  const DeviceCosts devices_;
  StepPricer pricer_;
  const int64_t micro_batches_;
  const Contention::Best best_rate_;
  std::vector<Price> prices_;
  StepCost cost_;  // of the member that was priced last
};

}  // namespace mpt::planner
