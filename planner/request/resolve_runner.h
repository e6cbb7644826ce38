// SPDX-License-Identifier: Apache-2.0
#pragma once

// The part of resolve() that is about who runs the plan: framework, precision, overlaps.

#include <string>
#include <vector>

#include "core/plan_request.h"
#include "planner/search/problem.h"

namespace mpt::planner {

/// What the framework of the request does on this cluster. Throws UserError.
Execution execution_of(const PlanRequest& request, const ClusterSpec& cluster,
                       std::vector<std::string>& notes);

/// What selective recompute runs again. Throws UserError for modules that the framework does not have.
SelectiveRecompute selective_of(const PlanRequest& request, const ModelSpec& model,
                                const Execution& execution);

/// As asked, or what the cluster's devices usually train in. Throws UserError for one that they lack.
Precision precision_of(const PlanRequest& request, const ClusterSpec& cluster);

/// What runs beside compute. Throws UserError for an unknown word.
Overlaps overlaps_of(const PlanRequest& request, const ClusterSpec& cluster, const Execution& execution);

}  // namespace mpt::planner
