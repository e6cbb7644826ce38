// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "planner/explain/screen.h"

namespace mpt::planner {

/// The answer of a plan that observed runs corrected: what they show, the recommended layout, the corrected
/// order, and what to measure next.
std::string observed_screen(const Plan& plan, const ScreenOptions& options = {});

}  // namespace mpt::planner
