// SPDX-License-Identifier: Apache-2.0
#include "profiler/hardware/nodes.h"

#include <cctype>
#include <sstream>

#include "base/embedded.h"
#include "base/json.h"

namespace mpt::profiler {

const EmbeddedFiles& catalog_files();  // generated

namespace {

// "dgx-b200@power-limited.json" is {"like": "dgx-b200", "changes": {...}, "sources": [...]}: the changes are
// a merge patch (RFC 7396) of the other file.
Json changed(const Json& variant, const std::string& name, Json node) {
  node.merge_patch(variant.at("changes"));
  node["name"] = name;
  for (const Json& source : variant.at("sources")) node["sources"].push_back(source);
  return node;
}

std::optional<Json> json_of_node(const std::string& name) {
  const auto text = embedded_text(catalog_files(), name + ".json");
  if (!text) return std::nullopt;
  Json json = parse_json(*text, "catalog/" + name);
  if (name.find('@') == std::string::npos) return json;
  return changed(json, name, *json_of_node(json.at("like").get<std::string>()));
}

}  // namespace

std::vector<std::string> node_names() {
  std::vector<std::string> names, variants;
  for (const auto& [file, text] : catalog_files()) {
    const std::string name(file.substr(0, file.rfind('.')));
    (name.find('@') == std::string::npos ? names : variants).push_back(name);
  }
  std::sort(names.begin(), names.end());
  std::sort(variants.begin(), variants.end());
  names.insert(names.end(), variants.begin(), variants.end());
  return names;
}

const NodeEntry* node_named(const std::string& name) {
  static ReadOnce<NodeEntry> nodes;
  return nodes.find(name, [](const std::string& file) -> std::optional<NodeEntry> {
    const auto json = json_of_node(file);
    return json ? std::optional(from_json<NodeEntry>(*json, "catalog/" + file)) : std::nullopt;
  });
}

const std::vector<NodeEntry>& catalog_nodes() {
  static const auto nodes =
      mapped<NodeEntry>(node_names(), [](const std::string& name) { return *node_named(name); });
  return nodes;
}

const NodeEntry* node_with_device(const std::string& device) {
  for (const std::string& name : node_names()) {
    // Files without the device's name are not read. A node precedes its variants, which have the same device.
    if (embedded_text(catalog_files(), name + ".json")->find('"' + device + '"') == std::string::npos)
      continue;
    const NodeEntry* const node = node_named(name);
    if (node->device.name == device) return node;
  }
  return nullptr;
}

const NodeEntry* find_node(const std::string& node_or_device) {
  const NodeEntry* const named = node_named(node_or_device);
  return named != nullptr ? named : node_with_device(node_or_device);
}

std::vector<std::string> device_words(const std::string& device) {
  std::string plain;
  for (const char c : device)
    plain += c == '_' || c == ' ' ? '-' : char(std::tolower(static_cast<unsigned char>(c)));
  for (const std::string_view maker : {"nvidia-", "amd-", "geforce-", "tesla-", "quadro-", "instinct-"})
    if (plain.starts_with(maker)) plain.erase(0, maker.size());
  for (const char* const part : {"nvl", "sxm", "pcie", "ada", "pro"})  // "h100nvl", "rtxpro6000"
    if (const size_t at = plain.find(part); at != std::string::npos) plain.insert(at, 1, '-');
  if (const size_t at = plain.find("pro6"); at != std::string::npos) plain.insert(at + 3, 1, '-');
  // "rtx-4090" is "rtx4090", "rtx-a6000" is "a6000".
  if (plain.size() > 4 && plain.starts_with("rtx-"))
    std::isdigit(static_cast<unsigned char>(plain[4])) != 0 ? plain.erase(3, 1) : plain.erase(0, 4);
  std::vector<std::string> words;
  std::istringstream rest(plain);
  for (std::string word; std::getline(rest, word, '-');)
    if (!word.empty()) words.push_back(word.starts_with("sxm") ? "sxm" : word);  // of any generation
  return words;
}

const NodeEntry* nearest_node(const std::string& device) {
  const std::vector<std::string> wanted = device_words(device);
  if (wanted.empty() || wanted.front().size() < 2) return nullptr;
  const NodeEntry* nearest = nullptr;
  int most = 0;
  for (const NodeEntry& node : catalog_nodes()) {
    const std::vector<std::string> words = device_words(node.device.name);
    if (!contains(words, wanted.front())) continue;
    int score = 1000 - int(words.size());
    if (!contains(wanted, "pcie") && !contains(wanted, "nvl") && contains(words, "sxm"))
      score += 50;  // usual
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
  cluster.host_memory_bytes = node.host_memory_bytes;
  cluster.devices = node.devices_per_node * count;
  cluster.levels = node.levels;
  if (count == 1 && cluster.levels.size() > 1) cluster.levels.pop_back();
  cluster.levels.back().group_size = std::max(cluster.levels.back().group_size, cluster.devices);
  if (cluster.devices > kMostDevices)
    refuse_input("--cluster " + name.substr(0, 80), fmt::format("{} devices", cluster.devices),
                 fmt::format("at most {}", kMostDevices), "name fewer nodes");
  return cluster;
}

}  // namespace mpt::profiler
