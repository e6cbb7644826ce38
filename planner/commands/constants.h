// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "planner/cost/calibration.h"

namespace mpt::planner {

/// Prints the constants of the cost model with their plausible ranges. Returns the exit code.
int print_constants(const Calibration& calibration, bool json);

}  // namespace mpt::planner
