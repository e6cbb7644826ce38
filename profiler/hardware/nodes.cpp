// SPDX-License-Identifier: Apache-2.0
#include "profiler/hardware/nodes.h"

#include <map>
#include <string_view>

#include "base/json.h"

namespace mpt::profiler {

const std::vector<std::pair<std::string_view, std::string_view>>& catalog_files();  // generated

namespace {

// "dgx-b200@power-limited.json" is {"like": "dgx-b200", "changes": {...}, "sources": [...]}: the changes are
// a merge patch (RFC 7396) of the other file.
Json changed(const Json& variant, const std::string& name, const std::map<std::string, Json>& plain) {
  Json node = plain.at(variant.at("like").get<std::string>());
  node.merge_patch(variant.at("changes"));
  node["name"] = name;
  for (const Json& source : variant.at("sources")) node["sources"].push_back(source);
  return node;
}

std::vector<NodeEntry> read_catalog() {
  std::map<std::string, Json> plain, variants;
  for (const auto& [file, text] : catalog_files()) {
    const std::string name(file.substr(0, file.rfind('.')));
    (name.find('@') == std::string::npos ? plain : variants)[name] = parse_json(std::string(text), name);
  }
  std::vector<NodeEntry> all;
  for (const auto& [name, json] : plain) all.push_back(from_json<NodeEntry>(json, "catalog/" + name));
  for (const auto& [name, json] : variants)
    all.push_back(from_json<NodeEntry>(changed(json, name, plain), "catalog/" + name));
  return all;
}

}  // namespace

const std::vector<NodeEntry>& catalog_nodes() {
  static const std::vector<NodeEntry> nodes = read_catalog();
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
  cluster.devices_per_host = node.devices_per_host;
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
