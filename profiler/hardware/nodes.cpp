// SPDX-License-Identifier: Apache-2.0
#include "profiler/hardware/nodes.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <sstream>
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

std::vector<std::string> device_words(const std::string& device) {
  std::string plain;
  for (const char c : device)
    plain += c == '_' || c == ' ' ? '-' : char(std::tolower(static_cast<unsigned char>(c)));
  for (const std::string_view maker : {"nvidia-", "amd-", "geforce-", "tesla-", "quadro-", "instinct-"}) {
    if (plain.starts_with(maker)) plain.erase(0, maker.size());
  }
  // "rtx-4090" is "rtx4090", "rtx-a6000" is "a6000".
  if (plain.size() > 4 && plain.starts_with("rtx-"))
    std::isdigit(static_cast<unsigned char>(plain[4])) != 0 ? plain.erase(3, 1) : plain.erase(0, 4);
  std::vector<std::string> words;
  std::istringstream rest(plain);
  for (std::string word; std::getline(rest, word, '-');)
    words.push_back(word.starts_with("sxm") ? "sxm" : word);  // of whichever generation
  return words;
}

const NodeEntry* nearest_node(const std::string& device) {
  const std::vector<std::string> wanted = device_words(device);
  if (wanted.empty() || wanted.front().size() < 2) return nullptr;
  const NodeEntry* nearest = nullptr;
  int most = 0;
  for (const NodeEntry& node : catalog_nodes()) {
    const std::vector<std::string> words = device_words(node.device.name);
    if (std::find(words.begin(), words.end(), wanted.front()) == words.end()) continue;
    int score = 1000 - int(words.size());
    for (const std::string& word : wanted)
      score += std::count(words.begin(), words.end(), word) > 0 ? 100 : 0;
    if (score <= most) continue;
    most = score;
    nearest = &node;
  }
  return nearest;
}

bool means_device(const std::string& reported, const std::string& name) {
  if (reported == name) return true;
  const NodeEntry* const nearest = nearest_node(reported);
  return nearest != nullptr && nearest->device.name == name;
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
