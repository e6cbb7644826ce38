// SPDX-License-Identifier: Apache-2.0
#pragma once

// Doubt: whether a run is of its plan at all, by the memory that it uses. What people leave out of a launch
// line, such as recompute, changes memory far more than a prediction errs.

#include <string>

#include "core/plan.h"

namespace mpt::planner {

/// Why a run that uses `bytes` on its fullest GPU is not the plan, and which change of the plan's layout
/// would explain it; empty where published runs are as far off. `at_least`: it ran out of memory there.
std::string doubt_by_memory(const Plan& plan, double bytes, bool at_least);

}  // namespace mpt::planner
