// SPDX-License-Identifier: Apache-2.0
#pragma once

// FusedAttention: causal attention of a library, for the shapes of the library's kernels.

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"

namespace mpt::runtime::cuda {

/// Layouts are those of Device::attention_forward(). Several threads may call it, each with a different
/// stream.
class FusedAttention {
 public:
  enum class Pass { forward, backward };

  virtual ~FusedAttention() = default;
  /// Memory that a pass needs in addition to its tensors. Nothing if the library has no kernel for it.
  virtual std::optional<int64_t> scratch_bytes(Pass, DataType, const AttentionShape&) = 0;
  /// Only for passes with scratch_bytes(); `scratch` has that size. Throws RunError.
  virtual void forward(cudaStream_t, DataType, const AttentionShape&, const void* qkv, void* out,
                       void* log_sum_exp, void* scratch) = 0;
  virtual void backward(cudaStream_t, DataType, const AttentionShape&, const void* dout, const void* qkv,
                        const void* out, const void* log_sum_exp, void* dqkv, void* scratch) = 0;
};

/// cuDNN's attention on the current device; null if there is none, or if this project's kernels are faster.
std::unique_ptr<FusedAttention> make_fused_attention();

}  // namespace mpt::runtime::cuda
