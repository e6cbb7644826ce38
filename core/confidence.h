// SPDX-License-Identifier: Apache-2.0
#pragma once

// How sure a prediction is: what published runs took and used beside their predictions says it
// (planner/explain/confidence.h).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"

namespace mpt {

/// Of one layout's prediction. What no run tells is absent.
struct Confidence {
#include "generated/Confidence.inc"
};

/// How far the choice among the fastest layouts depends on errors of the prices: their
/// predictions are drawn anew, with the errors that published runs show.
struct DrawnChoice {
#include "generated/DrawnChoice.inc"
};

}  // namespace mpt
