// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fields.h"

namespace mpt {

/// One GPU of the machine, as the driver shows it.
struct GpuDescription {
#include "generated/GpuDescription.inc"
};

}  // namespace mpt
