// SPDX-License-Identifier: Apache-2.0
#pragma once

// LayoutResolver: turns leaves into layouts. It works out the division into balanced stages, and how few
// layers of each stage must recompute. It keeps prices, schedules and programs, because many layouts share
// them.

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/activation_peaks.h"
#include "planner/search/evaluate.h"
#include "planner/search/price_cache.h"
#include "planner/search/program_cache.h"
#include "planner/search/split_model.h"

namespace mpt::planner {

/// Outcome of fitting a layout. duplicate: no layer recomputes, or all do, and such a layout has another
/// name.
enum class FitOutcome : uint8_t { some_layers, duplicate, over_memory, too_slow };

/// Sets `layout.recomputed_layers`, how many layers of each virtual stage recompute in full. A framework may
/// take any number for each stage. Then each rank recomputes the fewest layers with which it fits, lower
/// stages first, because their activations are held for longest. Over memory if a rank does not fit with all
/// of its layers recomputed. A framework may take one rule for all stages. Then it is the lowest level of it
/// (frameworks::recomputed_at_level) with which every rank fits. Fewer recomputed layers are never slower:
/// every duration falls, and the simulation only adds and compares.
///
/// `stages`: the layout's. `all_fit`: every rank is known to fit with all of its layers recomputed.
/// `too_slow`: asked when the first rank is fitted, with the numbers of its stages; may be empty.
FitOutcome fit_recompute(const SearchProblem& problem, const SplitModel& split, Layout& layout,
                         const StageKinds& stages, const ActivationPeaks& peaks, bool all_fit = false,
                         const std::function<bool(std::span<const int64_t>)>& too_slow = {});

class LayoutResolver {
 public:
  /// It serves all problems that differ from `problem` in bounds, frameworks and limits alone. `problem` must
  /// outlive it.
  explicit LayoutResolver(const SearchProblem& problem) : problem_(problem), prices_(problem) {}

  PriceCache& prices() { return prices_; }
  ProgramCache& programs() { return programs_; }

  /// The layout of a leaf of a sharding node. Fitted recompute is still open: it stands as no recompute,
  /// which is never slower.
  Layout layout(const Layout& node, const Leaf& leaf);
  /// The stages of a leaf of `node`; null where they are those of a simpler split, so that it is a layout
  /// under a second name.
  const StageKinds* stages(const Layout& node, const Leaf& leaf);

  /// Fits a layout that layout() left open: recompute becomes full, of as few layers as fit into the limits
  /// of `problem`. `stages`: the layout's. The rest as in fit_recompute().
  FitOutcome fit(const SearchProblem& problem, Layout& layout, const StageKinds& stages, bool all_fit = false,
                 const std::function<bool(std::span<const int64_t>)>& too_slow = {});

  std::vector<StageFootprint> footprints(const Layout& layout);
  /// Durations of the layout, which is the leaf's.
  StepCost cost(const Layout& layout, const Leaf& leaf);

  /// Of a layout whose schedule is made to measure: of the leanest named one in its place, to which recompute
  /// is fitted.
  std::shared_ptr<const ActivationPeaks> peaks(const Layout& layout);
  SlowPaths& slow_paths(const Layout& layout);

 private:
  std::vector<double> slowness(const Layout& node, const Leaf& leaf, StageSplit split);
  Division even(const Layout& node, const Leaf& leaf);
  Division balanced(const Layout& node, const Leaf& leaf, StageSplit split);
  Division division(const Layout& node, const Leaf& leaf);
  bool is_duplicate(const Layout& node, const Leaf& leaf, Division division);

  const SearchProblem& problem_;
  PriceCache prices_;
  ProgramCache programs_;
};

}  // namespace mpt::planner
