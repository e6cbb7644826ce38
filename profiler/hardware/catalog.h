// SPDX-License-Identifier: Apache-2.0
#pragma once

// The catalog of clusters: nodes by name with a count, this machine, or a file.

#include <optional>
#include <string>

#include "core/cluster_spec.h"
#include "profiler/hardware/profile.h"

namespace mpt::profiler {

/// "dgx-h100:8" is 8 nodes; "this-machine:4" is 4 CPU ranks on this machine, whose links and rates come from
/// `profile` if there is one, or 4 GPUs of one node if that was measured on a GPU; otherwise the path of a
/// cluster file, with a number of nodes if need be: "two-racks.json:4". Several joined by "+" are one mixed
/// cluster, "dgx-a100:8+dgx-h100:4@12.5GB/s@5ms", over one link of that bandwidth and latency between each
/// two; without them over the slower of their own networks. "dgx-b200@power-limited:2" is a variant of a
/// node. `gpus`: how many a node's name without a count means; 0: one node. Throws UserError.
ClusterSpec load_cluster(const std::string& name, const std::optional<Profile>& profile, int64_t gpus = 0);

/// "--cluster dgx-h100:4": of the nodes of `name` as many as have so many devices.
std::string larger_cluster(const std::string& name, int64_t devices);

/// How devices stand together, where no node of the catalog says so.
struct DevicePlacing {
  int64_t devices = 1;
  int64_t devices_per_node = 1;
  int64_t fast_links = 1;                   // devices within one domain of the innermost links
  double node_bandwidth_bytes_per_s = 0.0;  // out of one node; 0: as the catalog's node has it
  int64_t rails = 0;                        // ports that it comes out of; 0: one for each device
};
/// A cluster of the catalog's device that is nearest to a name: "h100-sxm-80gb" is one of them, "gb200" means
/// "gb200-186gb", "a100-pcie-40gb" the A100 with PCIe, with that memory. Nothing if no device has the name's
/// first word.
std::optional<ClusterSpec> cluster_of_device(const std::string& device, const DevicePlacing& placing);

}  // namespace mpt::profiler
