// SPDX-License-Identifier: Apache-2.0
#include "core/cluster_spec.h"

#include "core/error.h"

namespace mpt {

const LinkLevel& level_for_group(const ClusterSpec& cluster, int64_t size, int64_t stride) {
  MPT_CHECK(!cluster.levels.empty(), "cluster {} has no network levels", cluster.name);
  const int64_t span = (size - 1) * stride + 1;
  for (const LinkLevel& level : cluster.levels) {
    if (span <= level.group_size) return level;
  }
  return cluster.levels.back();
}

}  // namespace mpt
