// SPDX-License-Identifier: Apache-2.0
#pragma once

// Attention as graphs of operations that cuDNN recognizes as flash attention, for versions without a single
// operation for it (9.19 has causal masks only this way; NVIDIA/cudnn-frontend,
// node/scaled_dot_product_flash_attention.h, names the operations).

#include "runtime/device/cuda/cudnn_graph.h"
#include "runtime/device/device.h"

namespace mpt::runtime::cuda {

/// `type` is bfloat16 or float16. The layout of tensors is that of Device::attention_forward().
struct CudnnAttentionForward {
  CudnnAttentionForward(const Cudnn&, DataType type, const AttentionShape&);
  CudnnGraph graph;
  TensorId q = 0, k = 0, v = 0, scale = 0, minus_infinity = 0, out = 0, log_sum_exp = 0;
};

struct CudnnAttentionBackward {
  CudnnAttentionBackward(const Cudnn&, DataType type, const AttentionShape&);
  CudnnGraph graph;
  TensorId q = 0, k = 0, v = 0, scale = 0, minus_infinity = 0, one = 0, out = 0, log_sum_exp = 0, dout = 0;
  TensorId dq = 0, dk = 0, dv = 0;
  /// Intermediate memory of the graph: [b, a, s] and [b, a, s, d] floats.
  TensorId delta = 0, dq_sum = 0;
};

}  // namespace mpt::runtime::cuda
