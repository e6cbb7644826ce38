// SPDX-License-Identifier: Apache-2.0
#include "profiler/hardware/nodes.h"

#include <string_view>

#include "base/json.h"

namespace mpt::profiler {

const std::vector<std::pair<std::string_view, std::string_view>>& catalog_files();  // generated

const std::vector<NodeEntry>& catalog_nodes() {
  static const std::vector<NodeEntry> nodes = [] {
    std::vector<NodeEntry> all;
    for (const auto& [file, text] : catalog_files()) {
      const std::string where = "catalog/" + std::string(file);
      all.push_back(from_json<NodeEntry>(parse_json(std::string(text), where), where));
    }
    return all;
  }();
  return nodes;
}

const NodeEntry* find_node(const std::string& node_or_device) {
  const NodeEntry* with_device = nullptr;
  for (const NodeEntry& node : catalog_nodes()) {
    if (node.name == node_or_device) return &node;
    if (with_device == nullptr && node.device.name == node_or_device) with_device = &node;
  }
  return with_device;
}

ClusterSpec make_nodes(const NodeEntry& node, const std::string& name, int64_t count) {
  ClusterSpec cluster;
  cluster.name = name;
  cluster.device = node.device;
  cluster.devices_per_node = node.devices_per_node;
  cluster.devices = node.devices_per_node * count;
  cluster.levels = node.levels;
  if (count == 1 && cluster.levels.size() > 1) cluster.levels.pop_back();
  cluster.levels.back().group_size = std::max(cluster.levels.back().group_size, cluster.devices);
  if (cluster.devices > kMostDevices) {
    throw UserError(Problem{"--cluster " + name.substr(0, 80), fmt::format("{} devices", cluster.devices),
                            fmt::format("at most {}", kMostDevices), "name fewer nodes"});
  }
  return cluster;
}

}  // namespace mpt::profiler
