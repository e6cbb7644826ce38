// SPDX-License-Identifier: Apache-2.0
#pragma once

// Cluster files (docs/clusters.md). The short form names a node of the catalog and its differences. The full
// form is the cluster of a plan.json.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "core/cluster_spec.h"
#include "profiler/hardware/nodes.h"

namespace mpt::profiler {

/// A cluster and the network that would connect it to others.
struct NamedCluster {
  ClusterSpec cluster;
  LinkLevel network;
};

/// Reads a cluster file of either form. `nodes` replaces the file's number of nodes. Throws UserError with
/// every problem found.
NamedCluster load_cluster_file(const std::string& file, std::optional<int64_t> nodes);

/// `nodes` nodes like one of the catalog, but with `gpus_per_node` GPUs each.
NamedCluster nodes_of_size(NodeEntry node, const std::string& name, int64_t nodes, int64_t gpus_per_node);

/// The same for a parsed file.
NamedCluster read_cluster_file(const nlohmann::ordered_json& json, const std::string& file);

/// The share of a line rate that collectives reach, by the network's name: 0.9 on InfiniBand, three quarters
/// of that on any other, as in the catalog (docs/validation.md).
inline double achieved_share(const std::string& network) { return network == "infiniband" ? 0.9 : 0.675; }

/// Throws UserError if a device names kernel tables that do not exist; `where` names the cluster.
void check_kernels(const ClusterSpec& cluster, const std::string& where);

}  // namespace mpt::profiler
