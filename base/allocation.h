// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace mpt {

/// Devices allocate whole units of this many bytes; predicted and measured memory count the same way.
inline constexpr int64_t kAllocationUnit = 64;

constexpr int64_t rounded_bytes(int64_t bytes) {
  return (bytes + kAllocationUnit - 1) / kAllocationUnit * kAllocationUnit;
}

}  // namespace mpt
