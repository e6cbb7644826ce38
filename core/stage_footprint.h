// SPDX-License-Identifier: Apache-2.0
#pragma once

// StageFootprint: the plain bytes of one virtual stage on one rank. Filled by models/footprint.h from the
// model's operators, read by lower(), simulator and runtime. Holds no times.

#include <cstdint>

#include "base/fields.h"

namespace mpt {

struct StageFootprint {
#include "generated/StageFootprint.inc"

  int64_t static_bytes() const { return parameter_bytes + gradient_bytes + optimizer_bytes; }
  int64_t slot_bytes() const { return receives_in_place ? 0 : boundary_bytes; }
};

}  // namespace mpt
