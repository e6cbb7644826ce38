// SPDX-License-Identifier: Apache-2.0
#pragma once

// Whether a layout that may not fit is worth a trial, by the time that steps take on average.

#include <optional>
#include <vector>

#include "core/plan.h"

namespace mpt::planner {

inline constexpr int64_t kTrialSteps = 20;

/// A step on average over a short training: the first layout where it fits, else its trial and then the
/// other.
double expected_step_s(double fits, double first_s, double other_s);

/// Of `candidates`, which are faster than `safe`, the one with the least expected time; its place in
/// `candidates`, from 0, stands in try_first. Nothing where none gains enough, or nothing tells whether it
/// fits.
std::optional<WeighedRisk> weigh(const RankedLayout& safe, const std::vector<RankedLayout>& candidates);

}  // namespace mpt::planner
