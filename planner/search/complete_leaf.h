// SPDX-License-Identifier: Apache-2.0
#pragma once

// CompleteLeaf: a layout at the front of the frontier, with nothing left to choose. What its tiers work out,
// its simulation uses again.

#include <optional>
#include <vector>

#include "planner/search/incumbent.h"
#include "planner/search/layout_resolver.h"
#include "planner/search/made_to_measure.h"

namespace mpt::planner {

class CompleteLeaf : public Probe {
 public:
  /// `fits`: memory is known to suffice. All must outlive this.
  CompleteLeaf(const SearchProblem& problem, LayoutResolver& resolver, const Leaf& leaf, const Layout& layout,
               bool fits)
      : problem_(problem),
        resolver_(resolver),
        leaf_(leaf),
        layout_(layout),
        fits_(fits),
        generated_(schedule_catalog()[leaf.schedule].made_to_measure) {}

  bool peak_is_too_large(double);
  bool path_is_too_slow(double incumbent_s);
  bool no_schedule_fits(double incumbent_s);
  bool schedule_is_duplicate(double incumbent_s);

  /// Of a leaf that no tier prunes; nothing if it is slower than the incumbent. `step`: memory to use.
  std::optional<Incumbent> simulate(double incumbent_s, SimulatedStep& step);

 private:
  const StepCost& cost();
  const std::vector<StageFootprint>& footprints();
  const std::optional<MadeSchedule>& made(double incumbent_s);

  const SearchProblem& problem_;
  LayoutResolver& resolver_;
  const Leaf& leaf_;
  const Layout& layout_;
  const bool fits_, generated_;
  std::optional<StepCost> cost_;
  std::optional<std::vector<StageFootprint>> footprints_;
  std::optional<std::optional<MadeSchedule>> made_;  // once asked for
};

}  // namespace mpt::planner
