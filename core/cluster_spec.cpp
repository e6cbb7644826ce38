// SPDX-License-Identifier: Apache-2.0
#include "core/cluster_spec.h"

#include <numeric>

#include "base/error.h"

namespace mpt {

size_t level_of_blocks(const ClusterSpec& cluster, int64_t extent) {
  MPT_CHECK(!cluster.levels.empty(), "cluster {} has no network levels", cluster.name);
  for (size_t l = 0; l + 1 < cluster.levels.size(); ++l) {
    // A size that does not divide puts some block across the edge of two nodes.
    const int64_t size = cluster.levels[l].group_size;
    if (size >= cluster.devices || size % extent == 0) return l;
  }
  return cluster.levels.size() - 1;
}

namespace {

LinkPlace link_within(const std::vector<LinkLevel>& levels, int64_t first, int64_t last) {
  for (size_t l = 0; l < levels.size(); ++l) {
    if (l + 1 < levels.size() && first / levels[l].group_size != last / levels[l].group_size) continue;
    return {&levels[l], l == 0 ? 1 : levels[l - 1].group_size};
  }
  return {};
}

int64_t devices_of(const std::vector<DeviceGroup>& groups) {
  return sum_of<int64_t>(groups, &DeviceGroup::devices);
}

// The size of blocks that never cross a group's edge: it divides the first rank of every group.
int64_t common_block(const std::vector<DeviceGroup>& groups) {
  int64_t block = 0, start = 0;
  for (const DeviceGroup& group : groups) block = std::gcd(block, start += group.devices);
  return block;
}

// The group of the rank, and the first rank of that group.
std::pair<size_t, int64_t> place_of_rank(const std::vector<DeviceGroup>& groups, int64_t rank) {
  size_t group = 0;
  int64_t start = 0;
  while (group + 1 < groups.size() && rank >= start + groups[group].devices) start += groups[group++].devices;
  return {group, start};
}

// Joins two names, cut to the length that a plan may hold.
void join_name(std::string& name, const std::string& other) {
  if (name != other) name = cut_text(name + " + " + other, kMostNameBytes);
}

void take_least(DeviceSpec& least, const DeviceSpec& other) {
  const auto take = [](double& a, double b) { a = std::min(a, b); };
  join_name(least.name, other.name);
  least.memory_bytes = std::min(least.memory_bytes, other.memory_bytes);
  take(least.memory_bandwidth_bytes_per_s, other.memory_bandwidth_bytes_per_s);
  take(least.fp32_flop_per_s, other.fp32_flop_per_s);
  take(least.bf16_flop_per_s, other.bf16_flop_per_s);
  take(least.fp8_flop_per_s, other.fp8_flop_per_s);
  take(least.fp4_flop_per_s, other.fp4_flop_per_s);
  least.mxfp8 = least.mxfp8 && other.mxfp8;
  take(least.host_bandwidth_bytes_per_s, other.host_bandwidth_bytes_per_s);
}

// The worst values of the groups' networks: within a node, and within a group.
std::vector<LinkLevel> least_levels(const std::vector<DeviceGroup>& groups, const LinkLevel& link) {
  LinkLevel node = groups.front().levels.front(), group = groups.front().levels.back();
  const auto take = [](LinkLevel& least, const LinkLevel& other) {
    join_name(least.name, other.name);
    least.latency_s = std::max(least.latency_s, other.latency_s);
    least.bandwidth_bytes_per_s = std::min(least.bandwidth_bytes_per_s, other.bandwidth_bytes_per_s);
    least.oversubscription = std::max(least.oversubscription, other.oversubscription);
    least.rails = 0;
    least.mesh = std::max(least.mesh, other.mesh);
  };
  group.group_size = common_block(groups);
  node.group_size = group.group_size;
  for (const DeviceGroup& g : groups) {
    take(node, g.levels.front());
    take(group, g.levels.back());
    node.group_size = std::gcd(node.group_size, g.devices_per_node);
  }
  return {node, group, link};
}

}  // namespace

std::vector<ClusterDefect> cluster_defects(const ClusterSpec& cluster) {
  std::vector<ClusterDefect> defects;
  const auto check_levels = [&](const std::string& at, const std::vector<LinkLevel>& levels) {
    if (levels.empty()) defects.push_back({at, "an empty list", "at least one link level"});
  };
  check_levels("/levels", cluster.levels);
  for (size_t g = 0; g < cluster.groups.size(); ++g)
    check_levels(fmt::format("/groups/{}/levels", g), cluster.groups[g].levels);
  if (!cluster.mixed()) return defects;
  if (const int64_t devices = devices_of(cluster.groups); devices != cluster.devices)
    defects.push_back(
        {"/devices", std::to_string(cluster.devices), fmt::format("{}, the sum of its groups", devices)});
  if (cluster.groups.size() < 2 || cluster.groups.size() > kMostGroups)
    defects.push_back({"/groups", fmt::format("{} groups", cluster.groups.size()),
                       fmt::format("2 to {}, or none", kMostGroups)});
  return defects;
}

ClusterSpec with_groups(const ClusterSpec& cluster, const std::vector<DeviceGroup>& groups) {
  const DeviceGroup& first = groups.front();
  if (groups.size() == 1)
    return {first.name, first.device, first.devices, first.devices_per_node, 0, first.levels, {}};
  ClusterSpec out = cluster;
  out.groups = groups;
  out.device = first.device;
  out.devices = devices_of(groups);
  out.devices_per_node = first.devices_per_node;
  for (const DeviceGroup& group : groups) {
    take_least(out.device, group.device);
    out.devices_per_node = std::gcd(out.devices_per_node, group.devices_per_node);
  }
  LinkLevel link = cluster.levels.back();
  link.group_size = out.devices;
  out.levels = least_levels(groups, link);
  return out;
}

ClusterSpec join_clusters(const std::string& name, const std::vector<ClusterSpec>& parts,
                          const LinkLevel& link) {
  ClusterSpec cluster;
  cluster.name = cut_text(printable(name), kMostNameBytes);  // as typed, with paths of files
  cluster.levels = {link};
  std::vector<DeviceGroup> groups;
  cluster.host_memory_bytes = parts.front().host_memory_bytes;
  for (const ClusterSpec& part : parts) {
    groups.push_back({part.name, part.device, part.devices, part.devices_per_node, part.levels});
    cluster.host_memory_bytes = std::min(cluster.host_memory_bytes, part.host_memory_bytes);
  }
  return with_groups(cluster, groups);
}

ClusterSpec group_view(const ClusterSpec& cluster, size_t index) {
  if (!cluster.mixed()) return cluster;
  const DeviceGroup& group = cluster.groups[index];
  ClusterSpec view = cluster;
  view.device = group.device;
  view.devices_per_node = group.devices_per_node;
  view.levels = group.levels;
  const int64_t block = common_block(cluster.groups);
  for (LinkLevel& level : view.levels) level.group_size = std::gcd(level.group_size, block);
  view.levels.push_back(cluster.levels.back());
  return view;
}

size_t group_of_rank(const ClusterSpec& cluster, int64_t rank) {
  return place_of_rank(cluster.groups, rank).first;
}

LinkPlace link_of_ranks(const ClusterSpec& cluster, int64_t first, int64_t last) {
  MPT_CHECK(!cluster.levels.empty(), "cluster {} has no network levels", cluster.name);
  if (!cluster.mixed()) return link_within(cluster.levels, first, last);
  const auto [group, start] = place_of_rank(cluster.groups, first);
  if (group != group_of_rank(cluster, last)) return {&cluster.levels.back(), cluster.groups[group].devices};
  return link_within(cluster.groups[group].levels, first - start, last - start);
}

}  // namespace mpt
