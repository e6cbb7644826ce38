// SPDX-License-Identifier: Apache-2.0
#include "core/cluster_spec.h"

#include "core/error.h"

namespace mpt {

size_t level_of_blocks(const ClusterSpec& cluster, int64_t extent) {
  MPT_CHECK(!cluster.levels.empty(), "cluster {} has no network levels", cluster.name);
  for (size_t l = 0; l + 1 < cluster.levels.size(); ++l) {
    // A size that does not divide puts some block across the edge of two nodes.
    const int64_t size = cluster.levels[l].group_size;
    if (size >= cluster.devices || size % extent == 0) return l;
  }
  return cluster.levels.size() - 1;
}

const LinkLevel& level_of_ranks(const ClusterSpec& cluster, int64_t first, int64_t last) {
  MPT_CHECK(!cluster.levels.empty(), "cluster {} has no network levels", cluster.name);
  for (const LinkLevel& level : cluster.levels) {
    if (first / level.group_size == last / level.group_size) return level;
  }
  return cluster.levels.back();
}

}  // namespace mpt
