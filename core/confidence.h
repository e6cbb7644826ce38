// SPDX-License-Identifier: Apache-2.0
#pragma once

// How sure a prediction is. It follows from published runs: their times and memory compared with their
// predictions (planner/explain/confidence.h).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"

namespace mpt {

/// The confidence in one layout's prediction. A value is absent if no run supports it.
struct Confidence {
#include "generated/Confidence.inc"
};

/// How far the choice among the fastest layouts depends on errors of the prices: their
/// predictions are drawn anew, with the errors that published runs show.
struct DrawnChoice {
#include "generated/DrawnChoice.inc"
};

}  // namespace mpt
