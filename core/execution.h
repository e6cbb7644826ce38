// SPDX-License-Identifier: Apache-2.0
#pragma once

// Execution: how a framework runs a layout, as far as time and memory depend on it. The defaults are
// mpt-run's. The values of other frameworks are in frameworks/*/framework.json. Six structs group the fields.
// Files list all fields in one object. describe() documents each field; comments add details.

#include <cstdint>
#include <string>

#include "base/fields.h"

namespace mpt {

/// flash: scores never reach memory (arXiv:2205.14135). cudnn: the same, by the kernels of cuDNN 9 for
/// Hopper, and from 9.17 for Blackwell, whose rates in training were measured. unfused: two batched products
/// with scores, softmax and dropout between them in memory, over the full square of the sequence (Megatron-LM
/// before 2023). plain: unfused, and copying, masking and softmax are kernels of PyTorch's own. flash1 and
/// flash2: FlashAttention-1 and 2, which are not written for Hopper and later. own: this project's runtime on
/// GPUs, kernel by kernel as core/runtime_attention.h has it.
enum class AttentionKernel { flash, cudnn, flash1, flash2, unfused, plain, own };
inline bool writes_scores(AttentionKernel kernel) {
  return kernel == AttentionKernel::unfused || kernel == AttentionKernel::plain;
}
/// fused: norms, activations and rotary embedding are one kernel each. compiled: chains of them are fused
/// with each other (torch.compile). eager: every elementary operation is a kernel of its own.
enum class ElementwiseKernels { fused, compiled, eager };
/// What the loss keeps of the logits, which have vocabulary / tensor columns. own: as this project's runtime.
/// fused: the gradient in place of the logits. fp32: logits in fp32 and their softmax beside them. chunked:
/// head and loss go over some tokens at a time, and no more logits exist than of those.
enum class LossKernel { own, fused, fp32, chunked };

/// Which kernels a framework has.
struct Kernels {
#include "generated/Kernels.inc"
};

/// What stays in memory from forward to backward, beyond what operators need.
struct Kept {
#include "generated/Kept.inc"
};

/// Bytes per parameter of weights, gradients and the optimizer's state.
struct StateBytes {
#include "generated/StateBytes.inc"
};

/// How ranks talk to each other.
struct Traffic {
#include "generated/Traffic.inc"
};

/// What the host's side of a step takes.
struct HostTimes {
#include "generated/HostTimes.inc"
};

/// What a rank's process holds beside its tensors.
struct Allocator {
#include "generated/Allocator.inc"
};

struct Execution {
#include "generated/Execution.inc"
};

}  // namespace mpt
