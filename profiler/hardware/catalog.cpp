// SPDX-License-Identifier: Apache-2.0
#include "profiler/hardware/catalog.h"

#include "base/error.h"
#include "base/quantity.h"
#include "profiler/hardware/cluster_file.h"
#include "profiler/hardware/nodes.h"

namespace mpt::profiler {

namespace {

constexpr const char* kThisMachine = "this-machine";
struct NameAndCount {
  std::string name;
  std::optional<int64_t> count, gpus_per_node;
};

// "dgx-h100:8", or "rtx4090:2x8" for eight GPUs in each of two nodes.
NameAndCount split_name(const std::string& text) {
  constexpr int64_t kMostOfANode = 4096;
  const size_t colon = text.rfind(':');
  NameAndCount out{text.substr(0, colon), {}, {}};
  if (colon == std::string::npos) return out;
  const std::vector<std::string> counts = split_at(text.substr(colon + 1), 'x');
  const auto count = number_of<int64_t>(counts.front()), each = number_of<int64_t>(counts.back());
  const bool sized = counts.size() > 1;
  if (counts.size() > 2 || !count || !each || *count < 1 || *count > kMostDevices || *each < 1 ||
      (sized && *each > kMostOfANode)) {
    refuse_input(
        "--cluster " + text.substr(0, 80), fmt::format("the count \"{}\"", text.substr(colon + 1, 40)),
        fmt::format("a whole number of nodes from 1 to {}, and behind an x the GPUs of each", kMostDevices),
        "for example dgx-h100:8 for eight nodes, dgx-h100:8x4 for eight nodes of four GPUs");
  }
  out.count = count;
  if (sized) out.gpus_per_node = each;
  return out;
}

ClusterSpec make_cpu_ranks(const std::string& name, int64_t ranks, const std::optional<Profile>& profile) {
  const MachineDescription machine = profile ? profile->machine : describe_machine();
  ClusterSpec cluster;
  cluster.name = name;
  cluster.devices = cluster.devices_per_node = ranks;
  cluster.cores_per_node = machine.cores;
  cluster.device.name = machine.device;
  cluster.device.kind = DeviceKind::cpu;
  cluster.device.memory_bytes = machine.memory_bytes / ranks;
  // Without a profile: rates of a core of a recent server. Only the roofline reads them.
  cluster.device.memory_bandwidth_bytes_per_s = profile ? profile->memory_bandwidth_bytes_per_s : 1e10;
  cluster.device.fp32_flop_per_s = cluster.device.bf16_flop_per_s =
      profile ? profile->matmul_flop_per_s : 5e10;
  LinkLevel link{"shared-memory", ranks, 1e-6, 1e10};
  if (profile)
    for (const TransportTiming& t : profile->transport) {
      if (t.operation != TransportOperation::send_receive) continue;
      if (t.bytes == 1024) link.latency_s = t.seconds;
      link.bandwidth_bytes_per_s = double(t.bytes) / std::max(t.seconds, 1e-9);
    }
  cluster.levels = {link};
  return cluster;
}

// A node of the GPUs that the profile was measured on. Its links are the catalog's for such GPUs.
ClusterSpec make_own_gpus(const std::string& name, int64_t count, const MachineDescription& machine) {
  const NodeEntry* const nearest = nearest_node(machine.device);
  if (nearest == nullptr)
    refuse_input("--cluster " + name.substr(0, 80),
                 fmt::format("a profile of {}, which the catalog does not have", machine.device),
                 "a device of the catalog", "describe the node in a cluster file");
  NodeEntry node = *nearest;
  node.device.memory_bytes = machine.memory_bytes;
  node.devices_per_node = count;
  node.levels.resize(1);
  node.levels.front().group_size = count;
  return make_nodes(node, name, 1);
}

bool is_file(const std::string& name) {
  std::error_code error;
  return std::filesystem::is_regular_file(name, error);
}

bool is_path(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(".json") || is_file(name);
}

// The number of nodes that hold `gpus` GPUs, with the same number on each. One node if it holds them all.
int64_t nodes_for(int64_t gpus, const NodeEntry& node) {
  const int64_t per_node = node.devices_per_node, nodes = (gpus + per_node - 1) / per_node;
  if (gpus <= per_node) return 1;
  if (gpus % nodes == 0) return nodes;
  const int64_t fewer = gpus / per_node * per_node;
  refuse_input("--gpus", std::to_string(gpus),
               fmt::format("as many GPUs of each node of {}, which have {} each", node.name, per_node),
               fmt::format("--gpus {} or {}", fewer, fewer + per_node));
}

NamedCluster load_this_machine(int64_t ranks, const std::optional<Profile>& profile) {
  const std::string name = fmt::format("{}:{}", kThisMachine, ranks);
  const bool gpus = profile && profile->machine.kind == DeviceKind::gpu;
  auto cluster = gpus ? make_own_gpus(name, ranks, profile->machine) : make_cpu_ranks(name, ranks, profile);
  const LinkLevel network = cluster.levels.back();
  return {std::move(cluster), network};
}

UserError unknown_cluster(const std::string& name) {
  std::vector<std::string> known = node_names();
  known.emplace_back(kThisMachine);
  const NodeEntry* const near = nearest_node(name);
  const std::string hint =
      near != nullptr ? fmt::format("; did you mean \"{}\"?", near->name) : did_you_mean(name, known);
  return UserError("--cluster", fmt::format("unknown cluster \"{}\"{}", name.substr(0, 80), hint),
                   fmt::format("one of {} with a count, a GPU's name or a file", joined(known, ", ")),
                   "for example dgx-h100:8 or 16xh100; docs/clusters.md says how to describe your own");
}

// Translates other people's names of GPUs and machines into the catalog's: "h100:16", "16xh100" and "H100 x
// 16" are dgx-h100:2, "2x5090" is rtx5090-pcie:1x2, "p5.48xlarge:2" is dgx-h100@aws-p5:2. `gpus` as in
// load_part. Returns nothing for unknown names.
std::optional<std::string> catalog_words(const NameAndCount& typed, int64_t gpus) {
  constexpr int64_t kMostCards = 8;     // PCIe GPUs in one machine that people build
  constexpr int64_t kMostBehind = 512;  // "rtx4090" is no 4090 of a GPU
  for (const NodeEntry& node : catalog_nodes())
    if (any_of(node.instances,
               [&](const std::string& name) { return lower_case(name) == lower_case(typed.name); }))
      return fmt::format("{}:{}", node.name, typed.count ? *typed.count : nodes_for(gpus, node));
  std::string gpu = lower_case(typed.name);
  std::erase(gpu, ' ');
  int64_t times = 0;  // of "8x3090" and "3090x8"
  if (const size_t x = gpu.find('x'), last = gpu.rfind('x'); x != std::string::npos && !typed.count) {
    const int64_t front = number_of<int64_t>(gpu.substr(0, x)).value_or(0);
    const int64_t back = number_of<int64_t>(gpu.substr(last + 1)).value_or(0);
    const bool trails = back > 0 && back <= kMostBehind && (front <= 0 || back < front);
    times = trails ? back : front > 0 && front <= kMostDevices ? front : 0;
    gpu = trails ? gpu.substr(0, last) : gpu.substr(times > 0 ? x + 1 : 0);
  }
  if (gpu.find_first_not_of("0123456789") == std::string::npos) gpu = "rtx" + gpu;
  const NodeEntry* const node = nearest_node(gpu);
  if (node == nullptr) return std::nullopt;
  const std::vector<std::string> words = device_words(node->device.name);
  if (!all_of(device_words(gpu), [&](const std::string& word) { return contains(words, word); }))
    return std::nullopt;
  if (typed.gpus_per_node) return fmt::format("{}:{}x{}", node->name, *typed.count, *typed.gpus_per_node);
  const int64_t wanted = times > 0 ? times : typed.count.value_or(gpus > 0 ? gpus : node->devices_per_node);
  NodeEntry machine = *node;
  if (machine.devices_per_node == 1) machine.devices_per_node = kMostCards;
  const int64_t nodes = nodes_for(wanted, machine), each = wanted / nodes;
  const std::string size = each == node->devices_per_node ? "" : fmt::format("x{}", each);
  return fmt::format("{}:{}{}", node->name, nodes, size);
}

// `gpus`: how many GPUs a name without a count means; 0: one node.
NamedCluster load_part(const std::string& name, const std::optional<Profile>& profile, int64_t gpus) {
  if (is_file(name)) return load_cluster_file(name, {});
  const NameAndCount wanted = split_name(name);
  if (wanted.gpus_per_node && (is_path(wanted.name) || wanted.name == kThisMachine))
    refuse_input(
        "--cluster " + name.substr(0, 80), fmt::format("{} GPUs of each node", *wanted.gpus_per_node),
        "that of nodes of the catalog alone", "write gpus_per_node in the cluster file, or leave it out");
  if (is_path(wanted.name)) return load_cluster_file(wanted.name, wanted.count);
  if (wanted.name == kThisMachine)
    return load_this_machine(wanted.count.value_or(std::max<int64_t>(gpus, 1)), profile);
  const NodeEntry* const node = node_named(wanted.name);
  if (node == nullptr) {
    if (const auto words = catalog_words(wanted, gpus)) return load_part(*words, profile, 0);
    throw unknown_cluster(wanted.name);
  }
  const int64_t count = wanted.count ? *wanted.count : nodes_for(gpus, *node);
  const bool whole = wanted.count || gpus <= node->devices_per_node || gpus % node->devices_per_node == 0;
  const int64_t each = wanted.gpus_per_node.value_or(whole ? 0 : gpus / count);
  if (each > 0) return nodes_of_size(*node, fmt::format("{}:{}x{}", wanted.name, count, each), count, each);
  return {make_nodes(*node, fmt::format("{}:{}", wanted.name, count), count), node->levels.back()};
}

// Where the link's properties begin in "A+B@bandwidth@latency": the first @ that begins no variant's name.
size_t end_of_names(const std::string& text) {
  size_t end = text.find('@');
  while (end != std::string::npos) {
    const size_t next = text.find_first_of(":+@", end + 1);
    const size_t begin = text.rfind('+', end) + 1;  // 0 where there is none
    if (find_node(text.substr(begin, next - begin)) == nullptr) return end;
    end = text.find('@', end + 1);
  }
  return text.size();
}

// "A+B@bandwidth@latency".
ClusterSpec load_mixed(const std::string& text, const std::optional<Profile>& profile) {
  constexpr double kLatency = 1e-4;  // of some kilometres of fibre and the switches at its ends
  const std::string where = "--cluster " + text.substr(0, 120);
  const size_t end = end_of_names(text);
  std::vector<std::string> words = split_at(text.substr(end), '@');
  words.front() = text.substr(0, end);
  const std::vector<std::string> names = split_at(words.front(), '+');
  if (names.size() == 1) {
    std::vector<std::string> variants = node_names();
    std::erase_if(variants, [](const std::string& node) { return node.find('@') == std::string::npos; });
    refuse_input(
        where, fmt::format("\"@{}\" behind one cluster", words[1].substr(0, 40)),
        fmt::format("one of the variants {}, or clusters joined by + and their link", joined(variants, ", ")),
        "for example dgx-b200@2025:2, or dgx-a100:8+dgx-h100:4@12.5GB/s@5ms");
  }
  if (words.size() > 3 || names.size() < 2 || names.size() > kMostGroups)
    refuse_input(where,
                 fmt::format("{} clusters and {} properties of their link", names.size(), words.size() - 1),
                 fmt::format("2 to {} clusters joined by +, then @bandwidth and @latency", kMostGroups),
                 "for example dgx-a100:8+dgx-h100:4@12.5GB/s@5ms");
  std::vector<ClusterSpec> parts;
  LinkLevel link;
  int64_t devices = 0;
  for (const std::string& name : names) {
    NamedCluster part = load_part(name, profile, 0);
    if (part.cluster.device.kind == DeviceKind::cpu || part.cluster.mixed())
      refuse_input(where, fmt::format("{} among the joined clusters", name.substr(0, 80)),
                   "GPU clusters that are not mixed themselves", "plan for it alone");
    if (parts.empty() || part.network.bandwidth_bytes_per_s < link.bandwidth_bytes_per_s) link = part.network;
    devices += part.cluster.devices;
    parts.push_back(std::move(part.cluster));
  }
  if (devices > kMostDevices)
    refuse_input(where, fmt::format("{} devices", devices), fmt::format("at most {}", kMostDevices));
  // The name states how the text was understood, not the text itself.
  std::string name = joined(names, "+");
  const auto add = [&name](std::string property) {
    std::erase(property, ' ');
    name += "@" + property;
  };
  if (words.size() > 1) {
    link = {"link between clusters", devices, kLatency, parse_bandwidth(words[1], where), 1, 1.0};
    add(format_bandwidth(link.bandwidth_bytes_per_s));
  }
  if (words.size() > 2) {
    link.latency_s = parse_seconds(words[2], where);
    add(format_seconds(link.latency_s));
  }
  return join_clusters(name, parts, link);
}

// "40gb" in a device's name; 0 without.
int64_t gigabytes_in(const std::string& device) {
  for (const std::string& word : device_words(device)) {
    const auto gigabytes = number_of<int64_t>(word.ends_with("gb") ? word.substr(0, word.size() - 2) : "");
    if (gigabytes && *gigabytes > 0 && *gigabytes < 10000) return *gigabytes;
  }
  return 0;
}

}  // namespace

std::string larger_cluster(const std::string& name, int64_t devices) {
  const std::string kind = name.substr(0, name.rfind(':'));
  const NodeEntry* const node = node_named(kind);
  if (node == nullptr && kind != kThisMachine) return "a larger --cluster";
  const int64_t each = node != nullptr ? node->devices_per_node : 1;
  const bool cards = node != nullptr && each == 1;  // of one machine
  return fmt::format("--cluster {}:{}{}", kind, cards ? "1x" : "", (devices + each - 1) / each);
}

ClusterSpec load_cluster(const std::string& name, const std::optional<Profile>& profile, int64_t gpus) {
  const bool mixed = name.find('+') != std::string::npos || end_of_names(name) < name.size();
  return mixed && !is_file(name) ? load_mixed(name, profile) : load_part(name, profile, gpus).cluster;
}

std::optional<ClusterSpec> cluster_of_device(const std::string& device, const DevicePlacing& placing) {
  const NodeEntry* const exact = node_with_device(device);
  const NodeEntry* const found = exact != nullptr ? exact : nearest_node(device);
  if (found == nullptr) return std::nullopt;
  NodeEntry node = *found;
  if (const int64_t gigabytes = gigabytes_in(device);
      gigabytes > 0 && gigabytes != gigabytes_in(node.device.name))
    node.device.memory_bytes = gigabytes * kGiB;
  node.devices_per_node = std::min(placing.devices_per_node, placing.devices);
  LinkLevel& inside = node.levels.front();
  // A smaller mesh divides the same links among its devices. More devices than the mesh need a switch (16
  // V100 of a DGX-2).
  if (inside.mesh > 0 && placing.fast_links > 1)
    inside.mesh = placing.fast_links <= inside.mesh ? placing.fast_links : 0;
  inside.group_size = std::max<int64_t>(1, std::min(placing.fast_links, placing.devices));
  if (placing.node_bandwidth_bytes_per_s > 0.0) {
    const int64_t ports = placing.rails > 0 ? std::min(placing.rails, placing.devices_per_node) : 0;
    node.levels.back().rails = ports == placing.devices_per_node ? 0 : ports;
    node.levels.back().bandwidth_bytes_per_s =
        placing.node_bandwidth_bytes_per_s / double(ports > 0 ? ports : placing.devices_per_node);
  }
  const bool one = placing.devices <= node.levels.front().group_size;
  ClusterSpec cluster = make_nodes(node, fmt::format("{} x {}", placing.devices, device), 1);
  cluster.devices = placing.devices;
  cluster.levels = node.levels;
  if (one) cluster.levels.resize(1);
  cluster.levels.back().group_size = placing.devices;
  return cluster;
}

}  // namespace mpt::profiler
