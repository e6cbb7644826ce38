// SPDX-License-Identifier: Apache-2.0
#pragma once

// Execution: how a framework runs a layout, as far as time and memory depend on it. The defaults are
// mpt-run's. The values of other frameworks are in frameworks/*/framework.json. Six structs group the fields.
// Files list all fields in one object. describe() documents each field; comments add details.

#include <cstdint>
#include <string>

#include "base/fields.h"

namespace mpt {

/// flash: scores are never written to memory (arXiv:2205.14135). cudnn: the same, by the kernels of cuDNN 9
/// for Hopper, and from 9.17 for Blackwell; their rates in training were measured. unfused: two batched
/// products with scores, softmax and dropout between them in memory, over the full square of the sequence
/// (Megatron-LM before 2023). plain: unfused, and copying, masking and softmax are kernels of PyTorch. flash1
/// and flash2: FlashAttention-1 and 2, which are not written for Hopper and later. sdpa: what PyTorch's
/// scaled_dot_product_attention takes, cudnn on GPUs of compute capability 9.0 and 10.0 and flash2 on others.
/// own: this project's runtime on GPUs, with the kernels of core/runtime_attention.h.
enum class AttentionKernel { flash, cudnn, flash1, flash2, sdpa, unfused, plain, own };
inline bool writes_scores(AttentionKernel kernel) {
  return kernel == AttentionKernel::unfused || kernel == AttentionKernel::plain;
}
/// fused: norms, activations and rotary embedding are one kernel each. compiled: chains of them are fused
/// (torch.compile). eager: every elementary operation is a separate kernel.
enum class ElementwiseKernels { fused, compiled, eager };
/// How the loss keeps the logits, which have vocabulary / tensor columns. own: as in this project's runtime.
/// fused: the gradient replaces the logits. fp32: logits in fp32, and their softmax in a second buffer.
/// chunked: head and loss process some tokens at a time, and only their logits exist.
enum class LossKernel { own, fused, fp32, chunked };

/// Which kernels a framework has.
struct Kernels {
#include "generated/Kernels.inc"
};

/// Values that stay in memory from forward to backward, beyond the needs of operators.
struct Kept {
#include "generated/Kept.inc"
};

/// Bytes per parameter of weights, gradients and the optimizer's state.
struct StateBytes {
#include "generated/StateBytes.inc"
};

/// How ranks communicate.
struct Traffic {
#include "generated/Traffic.inc"
};

/// Time that the host's CPU takes in a step.
struct HostTimes {
#include "generated/HostTimes.inc"
};

/// Memory that a rank's process holds in addition to its tensors.
struct Allocator {
#include "generated/Allocator.inc"
};

struct Execution {
#include "generated/Execution.inc"
};

}  // namespace mpt
