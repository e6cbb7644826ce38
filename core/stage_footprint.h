// SPDX-License-Identifier: Apache-2.0
#pragma once

// StageFootprint: the bytes of one virtual stage on one rank. models/footprint.h computes it from the model's
// operators; lower(), simulator and runtime read it. It holds no times.

#include <cstdint>

#include "base/fields.h"

namespace mpt {

struct StageFootprint {
#include "generated/StageFootprint.inc"

  /// Bytes that are there from the start of a step on.
  int64_t static_bytes() const {
    return parameter_bytes + gradient_bytes + optimizer_bytes - late_gradient_bytes;
  }
  int64_t slot_bytes() const { return receives_in_place ? 0 : boundary_bytes; }
};

}  // namespace mpt
