// SPDX-License-Identifier: Apache-2.0
#pragma once

// How few layers of each stage must recompute so that every rank fits.

#include <functional>
#include <span>

#include "core/activation_peaks.h"
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

}  // namespace mpt::planner
