// SPDX-License-Identifier: Apache-2.0
#pragma once

// Bytes that this project's runtime moves to narrow operands of products to fp8 on a GPU
// (runtime/device/cuda/ fp8.cu): what reports/results/roofline.md counts of its kernels. Weights are narrowed
// once a step, which is not priced, but with ZeRO 3 for each product.

#include "core/layout.h"
#include "models/layer_program.h"
#include "profiler/hardware/profile.h"

namespace mpt::planner {

/// Where it narrows operands itself.
bool narrows_as_own_runtime(const Execution& execution, const models::OperatorShape& shape);

/// Of a product before this pass. Its input's largest magnitude is found once, and the gradient of its output
/// is narrowed once for both gradients.
double own_cast_bytes(const models::OperatorShape& shape, profiler::Phase phase);

/// Of a layer's operator, beyond that: activations find the magnitudes of their results, and weights that are
/// gathered for each use are narrowed for it.
double other_own_cast_bytes(const models::Operator& op, const Layout& layout, profiler::Phase phase);

}  // namespace mpt::planner
