// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/plan.h"

namespace mpt::planner {

/// `notes` and, where the plan's attention has no fast kernel in this project's runtime, a sentence that says
/// so.
std::vector<std::string> with_kernel_note(std::vector<std::string> notes, const Plan& plan);

}  // namespace mpt::planner
