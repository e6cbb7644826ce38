// SPDX-License-Identifier: Apache-2.0
#pragma once

// MemberFits: which of a family's members memory rules out before any of them is simulated. Footprints are
// worked out once for each division into stages and recompute, and for stages that differ alone.

#include <vector>

#include "planner/search/layout_resolver.h"
#include "planner/search/member_bounds.h"

namespace mpt::planner {

class MemberFits {
 public:
  /// Of the members of the family of `layout`. All must outlive this.
  MemberFits(const SearchProblem& problem, LayoutResolver& resolver, const Layout& layout,
             const MemberList& list);

  /// Whether a member of the list fits but for its transfer buffers, which only lowering can count. What is
  /// fitted later, with all layers recomputed; what is made to measure, with any of its named schedules.
  /// `stages`: its own.
  bool fits(size_t member, const StageKinds& stages);

 private:
  // Of one division into stages under one recompute.
  struct Known {
    std::vector<StageFootprint> footprints;  // by kind of stage; empty where not asked for yet
    bool above_floors = false;
    uint32_t asked = 0, fit = 0;  // by schedule, as bits
  };
  bool above_floors(const Known& known, const StageKinds& stages) const;
  bool fits(size_t schedule, Known& known, const StageKinds& stages);

  LayoutResolver& resolver_;
  const MemberList& list_;
  const SharedSplit split_;
  Layout layout_;  // of the member that was asked for last
  const std::vector<int64_t> limits_;
  std::vector<std::array<Known, 3>> known_;  // by division and Recompute
};

}  // namespace mpt::planner
