// SPDX-License-Identifier: Apache-2.0
#pragma once

// How few layers of each stage must recompute so that every rank fits.

#include <optional>
#include <span>
#include <vector>

#include "core/activation_peaks.h"
#include "planner/search/evaluate.h"

namespace mpt::planner {

/// Layers to recompute in full of each virtual stage, the fewest on each rank with which it fits, lower
/// stages of a rank first: their activations are held for longest. Nothing if a rank does not fit with all of
/// its layers recomputed. Fewer recomputed layers are never slower: every duration falls and the simulation
/// only adds and compares. `slots`: transfer buffers of each stage; empty to leave them out, which asks for
/// no more layers than with them.
std::optional<std::vector<int64_t>> fit_recompute(const SearchProblem& problem, const SplitModel& split,
                                                  const Layout& layout, const ActivationPeaks& peaks,
                                                  std::span<const StageSlots> slots);

}  // namespace mpt::planner
