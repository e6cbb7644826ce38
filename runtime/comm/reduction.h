// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/comm/communicator.h"

namespace mpt::runtime {

/// to[i - begin] = parts[0][i] op parts[1][i] op ..., for begin <= i < end, always in the order of the parts.
/// `to` may be parts[r] + begin for one r.
void reduce_in_order(DataType type, ReduceOperation operation, const std::vector<const void*>& parts,
                     int64_t begin, int64_t end, void* to);

/// Numbers of 16 bits and back, rounded to nearest even; `type` is bfloat16 or float16.
void widen(DataType type, const void* from, int64_t count, float* to);
void narrow(DataType type, const float* from, int64_t count, void* to);

}  // namespace mpt::runtime
