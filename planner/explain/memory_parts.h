// SPDX-License-Identifier: Apache-2.0
#pragma once

// The parts of the memory of a plan's fullest GPU.

#include <string>

#include "base/json.h"
#include "core/plan.h"

namespace mpt::planner {

/// [{"part": "weights", "bytes": ...}, ...] at the moment of the peak: weights, gathered weights, gradients,
/// optimizer, layers' activations, logits and loss, communication buffers, framework and context. They add up
/// to the peak, the buffers of communicators beside it, and the memory that tensors cannot use. "with": what
/// else the framework keeps in a part.
Json memory_parts(const Plan& plan);
/// The same as a bar with its legend, for a terminal.
std::string describe_parts(const Plan& plan);

}  // namespace mpt::planner
