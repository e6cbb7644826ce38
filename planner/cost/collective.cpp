// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/collective.h"

namespace mpt::planner {

CollectiveShape collective_shape(models::CollectiveKind kind, int64_t ranks) {
  const double share = double(ranks - 1) / double(ranks);
  switch (kind) {
    case models::CollectiveKind::all_reduce:
      return {2 * (ranks - 1), 2.0 * share};
    case models::CollectiveKind::all_gather:
    case models::CollectiveKind::reduce_scatter:
    case models::CollectiveKind::all_to_all:
      return {ranks - 1, share};
  }
  return {};
}

double ring_collective_s(models::CollectiveKind kind, int64_t bytes, int64_t ranks, int64_t stride,
                         const ClusterSpec& cluster) {
  if (ranks <= 1) return 0.0;
  const LinkLevel& level = level_for_group(cluster, ranks, stride);
  const CollectiveShape shape = collective_shape(kind, ranks);
  return double(shape.steps) * level.latency_s +
         shape.message_share * double(bytes) / level.bandwidth_bytes_per_s;
}

}  // namespace mpt::planner
