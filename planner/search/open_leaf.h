// SPDX-License-Identifier: Apache-2.0
#pragma once

// OpenLeaf: chooses the recomputed layers of a leaf at the front of the frontier. The first rank has a bound
// as soon as that rank is fitted.

#include <optional>
#include <span>

#include "planner/search/layout_resolver.h"

namespace mpt::planner {

class OpenLeaf : public Probe {
 public:
  /// `layout`: as LayoutResolver::layout() leaves it; gets its recompute. `stages`: its own. `all_fit`: it is
  /// known to fit with all layers recomputed. All must outlive this.
  OpenLeaf(const SearchProblem& problem, LayoutResolver& resolver, const StageKinds& stages, Layout& layout,
           bool all_fit);

  bool first_rank_is_too_slow(double incumbent_s) { return fit(incumbent_s) == FitOutcome::too_slow; }
  bool is_too_large(double incumbent_s) { return fit(incumbent_s) == FitOutcome::over_memory; }
  bool is_duplicate(double incumbent_s) { return fit(incumbent_s) == FitOutcome::duplicate; }

  /// The first call fits. Time decides only where all ranks fit with all layers recomputed.
  FitOutcome fit(double incumbent_s);
  /// Of the first rank alone, with recomputed layers by stage: never above that of the layout.
  double first_rank_s(std::span<const int64_t> recomputed_layers) const;
  /// Of the fitted layout.
  double bound_s() const;

 private:
  double bound_s(const StageKinds& stages) const;

  const SearchProblem& problem_;
  LayoutResolver& resolver_;
  const SplitModel& split_;
  const StageKinds& stages_;
  Layout& layout_;
  const bool all_fit_;
  StateCosts& states_;
  const DeviceCosts devices_;
  std::optional<FitOutcome> outcome_;
};

}  // namespace mpt::planner
