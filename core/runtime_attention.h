// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which kernel of this project's runtime computes an attention core on an NVIDIA GPU. The device launches the
// kernel that is chosen here, and the planner prices it.

#include <cstdint>

#include "base/fields.h"

namespace mpt {

/// cudnn: cuDNN's flash kernels. tensor_cores: this project's flash kernels on tensor cores. scalar: this
/// project's kernels in plain arithmetic, for all other cases.
enum class RuntimeAttention : uint8_t { cudnn, tensor_cores, scalar };

/// Requirements of an attention core on its kernel. Sinks are none: any kernel's result can take them.
struct AttentionNeeds {
  int64_t head_dim = 0, value_dim = 0;
  bool half = false;      // operands have 16 bits
  bool windowed = false;  // some query does not see all earlier keys
  bool scaled = false;    // the factor on scores is not 1 / sqrt(head_dim)
  bool capped = false;
  bool ring = false;  // keys come in blocks from other ranks
  /// Whether every fast kernel accepts the core, precision and ring not considered.
  constexpr bool plain() const { return value_dim == head_dim && !windowed && !scaled && !capped; }
  bool operator==(const AttentionNeeds&) const = default;
};

/// Whether cuDNN's kernels are faster on such a GPU: on Hopper and Blackwell's data-centre chips. On others
/// this project's kind is as fast or faster (huggingface/transformers pull request 48163).
/// `compute_capability`: 90 for 9.0; 0: it is not known, and cuDNN is expected.
constexpr bool prefers_cudnn(int64_t compute_capability) {
  return compute_capability == 0 || compute_capability / 10 == 9 || compute_capability / 10 == 10;
}

/// `cudnn`: cuDNN is available and preferred.
constexpr RuntimeAttention runtime_attention(const AttentionNeeds& n, bool cudnn) {
  constexpr int64_t kWidestOfCudnn = 256;
  const bool plain = n.half && n.plain();
  if (plain && cudnn && !n.ring && n.head_dim % 8 == 0 && n.head_dim <= kWidestOfCudnn)
    return RuntimeAttention::cudnn;
  return plain && (n.head_dim == 64 || n.head_dim == 128) ? RuntimeAttention::tensor_cores
                                                          : RuntimeAttention::scalar;
}

}  // namespace mpt
