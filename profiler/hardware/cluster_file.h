// SPDX-License-Identifier: Apache-2.0
#pragma once

// Cluster files (docs/clusters.md). The short form says what a cluster is like and what it has otherwise; the
// full form is the cluster of a plan.json.

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

/// Reads a cluster file of either form. `nodes`: as many instead of those that the file says. Throws
/// UserError with every problem found.
NamedCluster load_cluster_file(const std::string& file, std::optional<int64_t> nodes);

/// `nodes` nodes like one of the catalog, but with so many GPUs each.
NamedCluster nodes_of_size(NodeEntry node, const std::string& name, int64_t nodes, int64_t gpus_per_node);

/// The same of a parsed file.
NamedCluster read_cluster_file(const nlohmann::ordered_json& json, const std::string& file);

/// What collectives get of a line, by the network's name: nine tenths on InfiniBand, three quarters of that
/// on any other, as in the catalog (docs/validation.md).
inline double achieved_share(const std::string& network) { return network == "infiniband" ? 0.9 : 0.675; }

/// Throws UserError if a device names kernel tables that do not exist; `where` names the cluster.
void check_kernels(const ClusterSpec& cluster, const std::string& where);

}  // namespace mpt::profiler
