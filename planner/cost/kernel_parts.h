// SPDX-License-Identifier: Apache-2.0
#pragma once

// Launches and casts of a kernel beside its work, and measured collectives.

#include <optional>

#include "core/execution.h"
#include "core/layout.h"
#include "models/layer_program.h"
#include "models/operator.h"
#include "planner/cost/collective.h"
#include "profiler/hardware/kernel_tables.h"
#include "profiler/hardware/profile.h"

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

/// Where it narrows operands itself.
bool narrows_as_own_runtime(const Execution& execution, const models::OperatorShape& shape);

/// Of a product before this pass. Its input's largest magnitude is found once, and the gradient of its output
/// is narrowed once for both gradients.
double own_cast_bytes(const models::OperatorShape& shape, profiler::Phase phase);

/// Of a layer's operator, beyond that: activations find the magnitudes of their results, and weights that are
/// gathered for each use are narrowed for it.
double other_own_cast_bytes(const models::Operator& op, const Layout& layout, profiler::Phase phase);

/// What the nearest collective that was timed over several hosts, and crossed the same level as `group`, took
/// over its formula's time at that size. A ring that was not timed takes the ratio of another ring, since bus
/// bandwidth is what a link carries (nccl-tests, doc/PERFORMANCE.md). An all-to-all takes only its own.
/// Nothing where none was timed.
std::optional<double> measured_over_formula(const profiler::KernelTables& own, models::CollectiveKind kind,
                                            int64_t bytes, const GroupPlace& group,
                                            const ClusterSpec& cluster);

}  // namespace mpt::planner
