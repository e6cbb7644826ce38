// SPDX-License-Identifier: Apache-2.0
#pragma once

// Launches and casts of a kernel in addition to its work, and measured collectives.

#include <optional>

#include "core/execution.h"
#include "core/layout.h"
#include "models/layer_operators.h"
#include "models/operator.h"
#include "planner/cost/collective.h"
#include "profiler/hardware/kernel_tables.h"
#include "profiler/hardware/profile.h"

namespace mpt::planner {

struct Launches {
  double forward = 0.0, input_gradient = 0.0, weight_gradient = 0.0;
};

/// Launches, counted in the public sources of Megatron-LM (fused) and PyTorch's eager operators. A bias, a
/// cast or a reshape that copies is one launch.
Launches launches_of(const models::OperatorShape& shape, const Execution& execution);

/// Launches of one expert in a grouped product, if experts are launched one by one: the product, and in fp8
/// the cast of its input in both directions, which a weight gradient reuses, and the reordering of both
/// operands' scales (NVIDIA/TransformerEngine, pytorch/module/grouped_linear.py,
/// nvte_multi_stream_cublas_gemm).
Launches launches_of_expert(bool fp8);

/// Whether the runtime narrows operands of this shape itself.
bool narrows_as_own_runtime(const Execution& execution, const models::OperatorShape& shape);

/// Bytes of casts for a product before this pass. Its input's largest magnitude is found once, and the
/// gradient of its output is narrowed once for both gradients.
double own_cast_bytes(const models::OperatorShape& shape, profiler::Phase phase);

/// Further bytes of a layer's operator: activations find the magnitudes of their results, and weights that
/// are gathered for each use are narrowed for it.
double other_own_cast_bytes(const models::Operator& op, const Layout& layout, profiler::Phase phase);

/// Measured time over the formula's time at that size, for the nearest collective that was timed over several
/// hosts and crossed the same level as `group`. A ring that was not timed takes the ratio of another ring,
/// since bus bandwidth is the rate of a link (nccl-tests, doc/PERFORMANCE.md). An all-to-all takes only the
/// ratio of an all-to-all. Nothing if none was timed.
std::optional<double> measured_over_formula(const profiler::KernelTables& own, models::CollectiveKind kind,
                                            int64_t bytes, const GroupPlace& group,
                                            const ClusterSpec& cluster);

}  // namespace mpt::planner
