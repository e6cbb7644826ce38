// SPDX-License-Identifier: Apache-2.0
#pragma once

// Kernels that the host launches for an operator, whose starts and launches take time of their own.

#include "core/execution.h"
#include "models/operator.h"

namespace mpt::planner {

struct Launches {
  double forward = 0.0, input_gradient = 0.0, weight_gradient = 0.0;
};

/// Counted in the public sources of Megatron-LM (fused) and PyTorch's eager operators; a bias, a cast or a
/// reshape that copies is one of them.
Launches launches_of(const models::OperatorShape& shape, const Execution& execution);

/// Of a grouped product those of one expert, where experts are launched one by one: the product, and in fp8
/// its input cast in both directions, which a weight gradient finds done, and the scales of both operands put
/// in the order that the product reads (NVIDIA/TransformerEngine, pytorch/module/grouped_linear.py,
/// nvte_multi_stream_cublas_gemm).
Launches launches_of_expert(bool fp8);

}  // namespace mpt::planner
