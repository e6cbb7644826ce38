// SPDX-License-Identifier: Apache-2.0
#pragma once

// The catalog of clusters: nodes by name with a count, this machine, or a file.

#include <optional>
#include <string>
#include <vector>

#include "core/cluster_spec.h"
#include "profiler/hardware/profile.h"

namespace mpt::profiler {

/// "dgx-h100:8" is 8 nodes; "this-machine:4" is 4 CPU ranks on this machine, whose links and rates come from
/// `profile` if there is one; otherwise the path of a cluster file. Several joined by "+" are one mixed cluster,
/// "dgx-a100:8+dgx-h100:4@12.5GB/s@5ms", over one link of that bandwidth and latency between each two; without
/// them over the slower of their own networks. Throws UserError.
ClusterSpec load_cluster(const std::string& name, const std::optional<Profile>& profile);

std::vector<std::string> node_names();

}  // namespace mpt::profiler
