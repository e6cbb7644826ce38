// SPDX-License-Identifier: Apache-2.0
#pragma once

// The catalog of clusters: nodes by name with a count, this machine, or a file.

#include <optional>
#include <string>

#include "core/cluster_spec.h"
#include "profiler/hardware/profile.h"

namespace mpt::profiler {

/// "dgx-h100:8" is 8 nodes. "this-machine:4" is 4 ranks of this machine: GPUs of one node if `profile` was
/// measured on GPUs, else CPU ranks, with links and rates from `profile` if there is one. Other names are
/// paths of cluster files, optionally with a number of nodes: "two-racks.json:4".
/// "dgx-a100:8+dgx-h100:4@12.5GB/s@5ms" is one mixed cluster: a link of that bandwidth and latency joins each
/// two parts. Without them the parts' slower network does. "dgx-b200@power-limited:2" names a variant of a
/// node. `gpus`: how many GPUs a name without a count means; 0: one node. Throws UserError.
ClusterSpec load_cluster(const std::string& name, const std::optional<Profile>& profile, int64_t gpus = 0);

/// The option for enough nodes of `name` to hold so many devices, such as "--cluster dgx-h100:4".
std::string larger_cluster(const std::string& name, int64_t devices);

/// How devices are grouped into nodes and fast domains, for names that are no node of the catalog.
struct DevicePlacing {
  int64_t devices = 1, devices_per_node = 1;
  int64_t fast_links = 1;                   // devices within one domain of the innermost links
  double node_bandwidth_bytes_per_s = 0.0;  // out of one node; 0: the catalog's
  int64_t rails = 0;                        // network ports of a node; 0: one for each device
};
/// A cluster of the catalog's device with the nearest name: "h100-sxm-80gb" is one of them, "gb200" means
/// "gb200-186gb", "a100-pcie-40gb" means the A100 with PCIe, with 40 GB. Nothing if no device's name has the
/// first word of `device`.
std::optional<ClusterSpec> cluster_of_device(const std::string& device, const DevicePlacing& placing);

}  // namespace mpt::profiler
