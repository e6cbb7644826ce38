// SPDX-License-Identifier: Apache-2.0
#include "profiler/hardware/cluster_file.h"

#include <filesystem>

#include "base/json.h"
#include "base/quantity.h"
#include "base/values.h"
#include "profiler/hardware/kernel_tables.h"

namespace mpt::profiler {
namespace {

constexpr const char* kDocumented =
    "docs/clusters.md has files to copy; so has mpt-plan cluster NAME -o FILE";
constexpr double kUsualLatency = 1e-5;          // of a step between nodes
constexpr double kLatencyOfJoinedParts = 1e-4;  // of some kilometres of fibre and the switches at its ends

void check_keys(const Json& json, const std::string& file, const std::string& pointer,
                const std::vector<std::string>& known) {
  JsonProblems problems(file);
  if (!json.is_object()) problems.add(pointer, detail::describe_json(json), "an object");
  for (const auto& [key, value] : json.items()) {
    if (!json.is_object() || contains(known, key)) continue;
    const std::string meant = nearest_name(key, known);
    problems.add(pointer + "/" + detail::escape_pointer(key), "unknown key \"" + key.substr(0, 80) + "\"",
                 one_of(known), meant.empty() ? kDocumented : "did you mean \"" + meant + "\"?");
  }
  problems.throw_if_any();
}

// Users write quantities with units; the fields hold numbers in the unit that their name ends in.
void read_units(Json& json, const std::string& file, const std::string& pointer) {
  if (!json.is_structured()) return;
  size_t index = 0;
  for (auto& [key, value] : json.items()) {
    const std::string name = json.is_array() ? std::to_string(index++) : detail::escape_pointer(key);
    const std::string at = fmt::format("{}/{}", pointer, name);
    const std::string where = fmt::format("{} at {}", file, at);
    if (!value.is_string())
      read_units(value, file, at);
    else if (key.ends_with("_bytes_per_s"))
      value = parse_bandwidth(value.get<std::string>(), where);
    else if (key.ends_with("_bytes"))
      value = parse_bytes(value.get<std::string>(), where);
    else if (key == "latency_s")
      value = parse_seconds(value.get<std::string>(), where);
  }
}

void rename_key(Json& json, const char* from, const char* to) {
  if (!json.is_object() || !json.contains(from) || json.contains(to)) return;
  json[to] = json[from];
  json.erase(from);
}

std::vector<std::string> names_of_devices() {
  return mapped<std::string>(catalog_nodes(), [](const NodeEntry& node) { return node.device.name; });
}

std::string text_of(const Json& json, const std::string& where) {
  if (!json.is_string()) refuse_input(where, detail::describe_json(json), "a name");
  return json.get<std::string>();
}

// `like` with the keys of `changes` set. It keeps the kernel tables of `like`. Their rate is scaled by the
// ratio of the two peaks.
Json device_like(const DeviceSpec& like, const Json& changes) {
  DeviceSpec device = like;
  if (device.kernels.empty() && kernel_tables(device.name) != nullptr) device.kernels = device.name;
  Json json = with_members(to_json(device), changes, device.name);
  json.erase("like");
  const Json& peak = json["bf16_flop_per_s"];
  const bool other_peak = peak.is_number() && peak.get<double>() > 0.0 && !changes.contains("kernel_rate");
  if (other_peak && !changes.contains("kernels"))
    json["kernel_rate"] = device.kernel_rate * peak.get<double>() / device.bf16_flop_per_s;
  return json;
}

// A device written as a name, as {"like": name, ...}, as changes of `usual`, or in full.
Json whole_device(const Json& device, const DeviceSpec* usual, const std::string& file,
                  const std::string& pointer) {
  const bool named = device.is_string() || (device.is_object() && device.contains("like"));
  if (!named) return usual == nullptr || !device.is_object() ? device : device_like(*usual, device);
  const std::string where = file + " at " + pointer + (device.is_string() ? "" : "/like");
  const std::string name = text_of(device.is_string() ? device : device["like"], where);
  const NodeEntry* node = find_node(name);
  if (node == nullptr)
    refuse_input(
        where,
        fmt::format("unknown GPU \"{}\"{}", name.substr(0, 80), did_you_mean(name, names_of_devices())),
        one_of(names_of_devices()));
  return device_like(node->device, device.is_string() ? Json::object() : device);
}

// "100Gb/s ethernet", "8 x 400Gb/s infiniband": ports of a node, and the line rate of each.
Json network_in_words(const std::string& text, const std::string& where) {
  Json network = Json::object();
  std::string rest = text;
  const size_t times = rest.find_first_not_of("0123456789 ");
  if (times != std::string::npos && times > 0 && rest[times] == 'x') {
    int64_t ports = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + times, ports);
    if (error != std::errc{} || ports < 1)
      refuse_input(where, "\"" + text.substr(0, 80) + "\"", "ports x rate, such as 8 x 400Gb/s infiniband");
    network["ports_per_node"] = ports;
    rest.erase(0, rest.find_first_not_of(' ', times + 1));
  }
  const size_t slash = rest.find("/s"), blank = rest.find(' ', slash == std::string::npos ? 0 : slash);
  network["line_rate"] = rest.substr(0, blank);
  if (blank != std::string::npos) network["name"] = rest.substr(blank + 1);
  return network;
}

struct Network {
#include "generated/Network.inc"
};

LinkLevel read_network(const Json& json, const LinkLevel& usual, int64_t devices_per_node,
                       const std::string& file) {
  const std::string where = file + " at /network";
  Json words = json.is_string() ? network_in_words(json.get<std::string>(), where) : json;
  if (words.is_object() && !words.contains("latency_s")) words["latency_s"] = usual.latency_s;
  const auto network = from_json<Network>(words, file, "/network");
  if (network.line_rate.has_value() == network.bandwidth_bytes_per_s.has_value())
    refuse_input(where, network.line_rate ? "line_rate and bandwidth_bytes_per_s" : "no rate",
                 "one of the two",
                 "\"line_rate\": \"100Gb/s\" is what a network card is sold as, bandwidth_bytes_per_s what "
                 "messages get");
  LinkLevel level = usual;
  level.name = network.name;
  level.latency_s = network.latency_s;
  level.bandwidth_bytes_per_s =
      network.line_rate ? achieved_share(network.name) * parse_bandwidth(*network.line_rate, where)
                        : *network.bandwidth_bytes_per_s;
  level.rails = network.ports_per_node == devices_per_node ? 0 : network.ports_per_node;
  level.oversubscription = network.oversubscription;
  level.mesh = 0;
  return level;
}

// {"nvlink": {"bandwidth_bytes_per_s": 1.6e11}}: changes of a node's links by their names.
void change_levels(const Json& changes, NodeEntry& node, const std::string& file) {
  check_keys(changes, file, "/levels", mapped<std::string>(node.levels, &LinkLevel::name));
  for (LinkLevel& level : node.levels) {
    const auto change = changes.find(level.name);
    if (change == changes.end()) continue;
    if (!change->is_object())
      refuse_input(file + " at /levels/" + level.name, detail::describe_json(*change), "an object");
    level = from_json<LinkLevel>(with_members(to_json(level), *change, file), file,
                                 "/levels/" + detail::escape_pointer(level.name));
  }
}

// The last level connects nodes.
void set_devices_per_node(int64_t devices, NodeEntry& node) {
  for (LinkLevel& level : node.levels) {
    level.mesh = std::min(level.mesh, devices);
    if (level.group_size == node.devices_per_node) level.group_size = devices;
  }
  node.devices_per_node = devices;
  if (node.devices_per_host > 0 && devices % node.devices_per_host != 0) node.devices_per_host = 0;
}

int64_t whole_number(const Json& json, const std::string& file, const char* key, int64_t usual,
                     int64_t most) {
  const auto found = json.find(key);
  if (found == json.end()) return usual;
  JsonProblems problems(file);
  int64_t value = usual;
  detail::read_value(*found, std::string("/") + key, between(1, double(most)), problems, value);
  problems.throw_if_any();
  return value;
}

// The catalog's node that the file starts from: the one that "like" or the device's name selects.
NodeEntry node_like(const Json& json, const std::string& file) {
  const bool by_device = !json.contains("like") && json.contains("device");
  const Json& device = by_device ? json["device"] : json;
  if (!device.is_string() && !(device.is_object() && device.contains("like")))
    refuse_input(file, "neither \"like\" nor \"levels\"",
                 "\"like\" with a node of the catalog, such as dgx-h100, or a whole cluster with \"device\", "
                 "\"devices\", \"devices_per_node\" and \"levels\"",
                 kDocumented);
  const std::string where = file + (by_device ? " at /device" : " at /like");
  const std::string name = text_of(device.is_string() ? device : device["like"], where);
  if (const NodeEntry* node = find_node(name)) return *node;
  auto known = mapped<std::string>(catalog_nodes(), &NodeEntry::name);
  if (by_device) known = names_of_devices();
  refuse_input(where,
               fmt::format("unknown {} \"{}\"{}", by_device ? "GPU" : "node", name.substr(0, 80),
                           did_you_mean(name, known)),
               one_of(known));
}

NamedCluster read_short(const Json& json, const std::string& file, const std::string& name,
                        std::optional<int64_t> nodes) {
  check_keys(
      json, file, "",
      {"name", "like", "nodes", "devices_per_node", "host_memory_bytes", "device", "levels", "network"});
  NodeEntry node = node_like(json, file);
  node.name = name;
  set_devices_per_node(whole_number(json, file, "devices_per_node", node.devices_per_node, 4096), node);
  node.host_memory_bytes =
      whole_number(json, file, "host_memory_bytes", node.host_memory_bytes, int64_t(1e15));
  if (json.contains("device"))
    node.device =
        from_json<DeviceSpec>(whole_device(json["device"], &node.device, file, "/device"), file, "/device");
  if (json.contains("levels")) change_levels(json["levels"], node, file);
  if (json.contains("network"))
    node.levels.back() = read_network(json["network"], node.levels.back(), node.devices_per_node, file);
  const int64_t said = whole_number(json, file, "nodes", 1, kMostDevices);
  return {make_nodes(node, name, nodes.value_or(said)), node.levels.back()};
}

// Refuses values far outside those of real machines: the number was written in another unit than the key's.
void check_plausible(const ClusterSpec& cluster, const std::string& file) {
  JsonProblems problems(file);
  const auto check = [&](const std::string& at, double value, double least, double most, const char* unit) {
    if (value > 0.0 && (value < least || value > most))
      problems.add(at, fmt::format("{:g} {}", value, unit), fmt::format("{:g} to {:g}", least, most),
                   "the unit stands in the key; text with another one is read, too, such as \"12.5GB/s\"");
  };
  const DeviceSpec& d = cluster.device;
  check("/device/memory_bandwidth_bytes_per_s", d.memory_bandwidth_bytes_per_s, 1e9, 1e14, "bytes/s");
  check("/device/memory_bytes", double(d.memory_bytes), 1 << 20, 1e13, "bytes");
  check("/device/bf16_flop_per_s", d.bf16_flop_per_s, 1e8, 1e17, "FLOP/s");
  for (size_t l = 0; l < cluster.levels.size(); ++l)
    check(fmt::format("/levels/{}/bandwidth_bytes_per_s", l), cluster.levels[l].bandwidth_bytes_per_s, 1e6,
          1e13, "bytes/s");
  problems.throw_if_any();
}

void check_file(const ClusterSpec& cluster, const std::string& file) {
  JsonProblems problems(file);
  for (const auto& [at, found, allowed] : cluster_defects(cluster)) problems.add(at, found, allowed);
  problems.throw_if_any();
  check_plausible(cluster, file);
  check_kernels(cluster, file);
}

NamedCluster read_full(Json json, const std::string& file, std::optional<int64_t> nodes) {
  if (json.is_object() && json.contains("device"))
    json["device"] = whole_device(json["device"], nullptr, file, "/device");
  for (size_t g = 0; json.contains("groups") && json["groups"].is_array() && g < json["groups"].size(); ++g) {
    if (Json& group = json["groups"][g]; group.is_object() && group.contains("device"))
      group["device"] = whole_device(group["device"], nullptr, file, fmt::format("/groups/{}/device", g));
  }
  auto cluster = from_json<ClusterSpec>(json, file);
  check_file(cluster, file);
  const LinkLevel network = cluster.levels.back();
  if (!nodes) return {std::move(cluster), network};
  const bool has_network = cluster.levels.size() > 1 || cluster.devices_per_node == 1;
  if (cluster.mixed() || (*nodes > 1 && !has_network))
    refuse_input(file,
                 fmt::format("{} nodes of {}", *nodes,
                             cluster.mixed() ? "a mixed cluster" : "a cluster without a level between nodes"),
                 "a file of one kind of nodes with a network between them",
                 "leave the count out, or add a level");
  NodeEntry node{cluster.name, cluster.device,           cluster.devices_per_node, cluster.levels,
                 {},           cluster.devices_per_host, cluster.host_memory_bytes};
  if (has_network) node.levels.back().group_size = 1;  // joins all nodes, however many
  return {make_nodes(node, cluster.name, *nodes), network};
}

NamedCluster read_cluster(Json json, const std::string& file, const std::string& usual_name,
                          std::optional<int64_t> nodes);

// Nodes of several kinds, joined by one network.
NamedCluster read_parts(const Json& json, const std::string& file, const std::string& name,
                        std::optional<int64_t> nodes) {
  check_keys(json, file, "", {"name", "parts", "network"});
  const Json& parts = json["parts"];
  if (nodes)
    refuse_input(file, "a count for a cluster of several parts", "no count",
                 "write \"nodes\" into each part");
  if (!parts.is_array() || parts.size() < 2 || parts.size() > kMostGroups)
    refuse_input(file + " at /parts",
                 parts.is_array() ? fmt::format("{} parts", parts.size()) : detail::describe_json(parts),
                 fmt::format("2 to {} clusters in the short form", kMostGroups), kDocumented);
  std::vector<ClusterSpec> clusters;
  LinkLevel slowest;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string where = fmt::format("{}, part {}", file, i + 1);
    NamedCluster part = read_cluster(parts[i], where, fmt::format("part {}", i + 1), std::nullopt);
    if (part.cluster.mixed() || part.cluster.device.kind == DeviceKind::cpu)
      refuse_input(where, part.cluster.mixed() ? "parts of its own" : "CPU ranks", "GPUs of one kind");
    if (i == 0 || part.network.bandwidth_bytes_per_s < slowest.bandwidth_bytes_per_s) slowest = part.network;
    clusters.push_back(std::move(part.cluster));
  }
  LinkLevel usual = slowest;
  usual.latency_s = kLatencyOfJoinedParts;
  const LinkLevel link = json.contains("network") ? read_network(json["network"], usual, 0, file) : slowest;
  return {join_clusters(name, clusters, link), link};
}

NamedCluster read_cluster(Json json, const std::string& file, const std::string& usual_name,
                          std::optional<int64_t> nodes) {
  if (!json.is_object()) refuse_input(file, detail::describe_json(json), "an object", kDocumented);
  rename_key(json, "gpu", "device");
  rename_key(json, "gpus", "devices");
  rename_key(json, "gpus_per_node", "devices_per_node");
  read_units(json, file, "");
  const bool starts_from_another = json.contains("like") || json.contains("parts");
  if (const auto levels = json.find("levels");
      levels != json.end() && levels->is_array() && !starts_from_another)
    return read_full(std::move(json), file, nodes);
  const std::string name = json.contains("name") ? text_of(json["name"], file + " at /name") : usual_name;
  NamedCluster read =
      json.contains("parts") ? read_parts(json, file, name, nodes) : read_short(json, file, name, nodes);
  check_file(read.cluster, file);
  return read;
}

}  // namespace

NamedCluster load_cluster_file(const std::string& file, std::optional<int64_t> nodes) {
  return read_cluster(load_json(file, int64_t{1} << 20), file, std::filesystem::path(file).stem().string(),
                      nodes);
}

NamedCluster nodes_of_size(NodeEntry node, const std::string& name, int64_t nodes, int64_t gpus_per_node) {
  set_devices_per_node(gpus_per_node, node);
  return {make_nodes(node, name, nodes), node.levels.back()};
}

NamedCluster read_cluster_file(const Json& json, const std::string& file) {
  return read_cluster(json, file, "cluster", std::nullopt);
}

void check_kernels(const ClusterSpec& cluster, const std::string& where) {
  const auto check = [&](const DeviceSpec& device, const std::string& at) {
    if (device.kernels.empty() || kernel_tables(device.kernels) != nullptr) return;
    const std::vector<std::string> known = kernel_table_names();
    refuse_input(where + " at " + at + "/kernels",
                 fmt::format("no measured kernels of \"{}\"{}", device.kernels.substr(0, 80),
                             did_you_mean(device.kernels, known)),
                 one_of(known), "or leave it out: prices are then a roofline of the peak rates");
  };
  // The device of a mixed cluster only summarizes the devices of its groups.
  if (!cluster.mixed()) check(cluster.device, "/device");
  for (size_t g = 0; g < cluster.groups.size(); ++g)
    check(cluster.groups[g].device, fmt::format("/groups/{}/device", g));
}

}  // namespace mpt::profiler
