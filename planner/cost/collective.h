// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/cluster_spec.h"
#include "models/layer_program.h"

namespace mpt::planner {

/// Steps on the critical path and share of the message that each rank sends, for the ring algorithms
/// (docs/collectives.md; Patarasuk and Yuan 2009).
struct CollectiveShape {
  int64_t steps = 0;
  double message_share = 0.0;
};
CollectiveShape collective_shape(models::CollectiveKind kind, int64_t ranks);

/// steps x latency + share x bytes / bandwidth, on the innermost level that holds the group.
double ring_collective_s(models::CollectiveKind kind, int64_t bytes, int64_t ranks, int64_t stride,
                         const ClusterSpec& cluster);

}  // namespace mpt::planner
