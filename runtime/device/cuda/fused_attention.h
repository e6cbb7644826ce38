// SPDX-License-Identifier: Apache-2.0
#pragma once

// FusedAttention: causal attention by a library, for the shapes that it has kernels of.

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"

namespace mpt::runtime::cuda {

/// Layouts are Device::attention_forward()'s. May be called from several threads, each with a stream of its
/// own.
class FusedAttention {
 public:
  enum class Pass { forward, backward };

  virtual ~FusedAttention() = default;
  /// Memory that a pass needs in addition to its tensors. Nothing where the library has no kernel after all.
  virtual std::optional<int64_t> scratch_bytes(Pass, DataType, const AttentionShape&) = 0;
  /// Where scratch_bytes() says how much, on so much `scratch`. Throws RunError.
  virtual void forward(cudaStream_t, DataType, const AttentionShape&, const void* qkv, void* out,
                       void* log_sum_exp, void* scratch) = 0;
  virtual void backward(cudaStream_t, DataType, const AttentionShape&, const void* dout, const void* qkv,
                        const void* out, const void* log_sum_exp, void* dqkv, void* scratch) = 0;
};

/// cuDNN's, on the current device; null where there is none, or where this project's own kernels are the
/// faster.
std::unique_ptr<FusedAttention> make_fused_attention();

}  // namespace mpt::runtime::cuda
