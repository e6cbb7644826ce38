// SPDX-License-Identifier: Apache-2.0
#pragma once

// Narrowed: an operand of one product in 8 bits.

#include "runtime/device/cuda/call_streams.h"
#include "runtime/device/cuda/gemm.h"
#include "runtime/device/cuda/kernels.h"

namespace mpt::runtime::cuda {

class Narrowed {
 public:
  enum Order { kAsItIs, kTransposed };
  /// Of data [rows, columns], which is Bfloat16 or Half.
  Narrowed(CallStreams& streams, DataType type, Fp8 format, int64_t rows, int64_t columns, Order order,
           const void* data)
      : format_(format),
        numbers_(streams, rows * columns),
        scale_(streams, sizeof(float)),
        magnitudes_(streams, fp8_scratch_bytes()) {
    const auto go = [&](auto* from) {
      narrow_to_fp8(streams.mine(), format, rows, columns, order == kTransposed, from, numbers(), scale(),
                    magnitudes_.data());
    };
    type == DataType::bfloat16 ? go(static_cast<const Bfloat16*>(data)) : go(static_cast<const Half*>(data));
  }
  Fp8Matrix matrix() const { return {format_, numbers(), scale()}; }

 private:
  uint8_t* numbers() const { return static_cast<uint8_t*>(numbers_.data()); }
  float* scale() const { return static_cast<float*>(scale_.data()); }

  Fp8 format_;
  Scratch numbers_, scale_, magnitudes_;
};

}  // namespace mpt::runtime::cuda
