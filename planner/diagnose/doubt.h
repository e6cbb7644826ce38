// SPDX-License-Identifier: Apache-2.0
#pragma once

// Whether a run is of its plan at all, judged by its memory. A setting that people omit from a launch line,
// such as recompute, changes memory far more than a prediction errs.

#include <string>

#include "core/plan.h"

namespace mpt::planner {

/// Why a run that uses `bytes` on its fullest GPU is not the plan, and the change of the plan's layout that
/// would explain it. Empty if published runs have similar errors. `at_least`: it ran out of memory there.
std::string doubt_by_memory(const Plan& plan, double bytes, bool at_least);

}  // namespace mpt::planner
