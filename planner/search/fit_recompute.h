// SPDX-License-Identifier: Apache-2.0
#pragma once

// How few layers of each stage must recompute so that every rank fits.

#include <functional>
#include <span>
#include <vector>

#include "core/activation_peaks.h"
#include "planner/search/evaluate.h"

namespace mpt::planner {

/// Of a layout whose first rank recomputes as many layers of its stages as said.
using FirstRankIsTooSlow = std::function<bool(std::span<const int64_t> recomputed_layers)>;

struct FittedRecompute {
  enum class Known { fitted, over_memory, too_slow };
  Known known;
  std::vector<int64_t> recomputed_layers;  // of each virtual stage; empty unless fitted
};

/// Where the framework takes any number for each stage: layers to recompute in full of each virtual stage of
/// `stages`, which are the layout's, the fewest on each rank with which it fits, lower stages of a rank
/// first: their activations are held for longest. Over memory if a rank does not fit with all of its layers
/// recomputed. Where it takes one rule for all stages: the lowest level of it
/// (frameworks::recomputed_at_level) with which every rank fits. Fewer recomputed layers are never slower:
/// every duration falls and the simulation only adds and compares. `all_fit`: every rank is known to fit with
/// all of its layers recomputed. `too_slow`: asked when the first rank is fitted; may be empty.
FittedRecompute fit_recompute(const SearchProblem& problem, const SplitModel& split, const Layout& layout,
                              const StageKinds& stages, const ActivationPeaks& peaks, bool all_fit = false,
                              const FirstRankIsTooSlow& too_slow = {});

}  // namespace mpt::planner
