// SPDX-License-Identifier: Apache-2.0
#pragma once

// MemberFits: which of a family's members memory rules out before any of them waits to be simulated.
// Footprints are worked out once for each division into stages and recompute, and for stages that differ
// alone. A schedule is made only when a layout that has it comes to the front of the search's queue; until
// then its floors are all that is known of a member.

#include <array>
#include <optional>
#include <vector>

#include "planner/search/layout_resolver.h"
#include "planner/search/member_bounds.h"

namespace mpt::planner {

class MemberFits {
 public:
  enum class Fits : uint8_t { no, yes, unknown };

  /// Of the members of the family of `layout`. All must outlive this. `makes_schedules`: where none is there
  /// to ask yet; else what it would say is unknown.
  MemberFits(const SearchProblem& problem, LayoutResolver& resolver, const Layout& layout,
             const MemberList& list, bool makes_schedules);

  /// Whether a member of the list fits. What is fitted later, with all layers recomputed; what is made to
  /// measure, with any of its named schedules. `stages`: its own.
  Fits fits(size_t member, const StageKinds& stages);

 private:
  // Of one division into stages under one recompute.
  struct Known {
    std::vector<StageFootprint> footprints;  // by kind of stage; empty where not asked for yet
    bool above_floors = false;
    std::vector<std::optional<Fits>> fits;  // by schedule
  };
  bool above_floors(const Known& known, const StageKinds& stages) const;
  Fits fits(size_t schedule, Known& known, const StageKinds& stages);

  ProgramCache& programs_;
  const bool makes_schedules_;
  const int64_t micro_batches_;
  const MemberList& list_;
  const SharedSplit split_;
  Layout layout_;  // of the member that was asked for last
  const std::vector<int64_t> limits_;
  std::vector<std::array<Known, 3>> known_;  // by division and Recompute
};

}  // namespace mpt::planner
