// SPDX-License-Identifier: Apache-2.0
#pragma once

// LeafMemory: which leaves of a sharding node memory rules out before any of them enters the frontier.
// Footprints are worked out once for each division into stages and recompute, and only for stages that
// differ. A schedule is made only when a layout that has it comes to the front of the frontier. Until then
// only the floors of a leaf are known.

#include <array>
#include <optional>
#include <vector>

#include "planner/search/layout_resolver.h"

namespace mpt::planner {

class LeafMemory {
 public:
  enum class Fits : uint8_t { no, yes, unknown };

  /// Of the leaves of `node`, which is one of sharding. All must outlive this. `makes_schedules`: makes a
  /// schedule that is not in the cache; otherwise its leaves are unknown.
  LeafMemory(const SearchProblem& problem, LayoutResolver& resolver, const Layout& node, const LeafList& list,
             bool makes_schedules);

  /// Whether a leaf of the list fits. A leaf with open recompute is asked with all layers recomputed, a
  /// generated schedule with each named one of its placement. `stages`: its own.
  Fits fits(size_t leaf, const StageKinds& stages);
  /// Whether a leaf that does not fit may do so within the limits of `roomier`.
  bool may_fit(const SearchProblem& roomier, size_t leaf, const StageKinds& stages) const;

 private:
  // Of one division into stages under one recompute.
  struct DivisionMemory {
    std::vector<StageFootprint> footprints;  // by kind of stage; empty where not asked for yet
    std::vector<int64_t> limits;             // of ranks
    bool above_floors = false;
    std::vector<std::optional<Fits>> fits;  // by schedule
  };
  static bool above_floors(const DivisionMemory& division, const std::vector<int64_t>& limits,
                           const StageKinds& stages);
  Fits fits(size_t schedule, DivisionMemory& division, const StageKinds& stages);
  Fits fits_made(const Leaf& leaf, DivisionMemory& division, const StageKinds& stages);

  ProgramCache& programs_;
  const bool makes_schedules_;
  const int64_t micro_batches_;
  const LeafList& list_;
  const SplitModel& split_;
  Layout layout_;  // of the leaf that was asked for last
  const SearchProblem& problem_;
  std::vector<std::array<DivisionMemory, 3>> divisions_;  // by division and Recompute
};

}  // namespace mpt::planner
