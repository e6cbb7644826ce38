// SPDX-License-Identifier: Apache-2.0
#pragma once

// Predictions corrected by observed runs (planner/observe/).

#include <string>
#include <vector>

#include "base/fields.h"
#include "core/confidence.h"
#include "core/layout.h"

namespace mpt {

struct CorrectedLayout {
#include "generated/CorrectedLayout.inc"
};

struct Corrected {
#include "generated/Corrected.inc"
};

}  // namespace mpt
