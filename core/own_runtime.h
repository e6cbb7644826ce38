// SPDX-License-Identifier: Apache-2.0
#pragma once

// What mpt-run does not have: the planner asks before it plans for it, mpt-run before it trains.

#include "core/layout.h"

namespace mpt {

constexpr bool mpt_run_multiplies_in(Precision precision) {
  return precision != Precision::mxfp8 && precision != Precision::nvfp4;
}

}  // namespace mpt
