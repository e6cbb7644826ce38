// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/kernel_parts.h"

#include <algorithm>
#include <tuple>

namespace mpt::planner {
namespace {

using models::CollectiveKind;

constexpr CollectiveKind kRings[] = {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                     CollectiveKind::reduce_scatter};

bool is_ring(CollectiveKind kind) { return kind != CollectiveKind::all_to_all; }

// The cluster of the measurement: its nodes had no other ranks, which would share the ports.
ClusterSpec with_ranks_per_host(const ClusterSpec& cluster, int64_t ranks_per_host) {
  ClusterSpec alone = cluster;
  alone.devices_per_node = ranks_per_host;
  for (LinkLevel& level : alone.levels)
    level.group_size = std::max<int64_t>(1, level.group_size * ranks_per_host / cluster.devices_per_node);
  return alone;
}

struct Timed {
  CollectiveKind kind = CollectiveKind::all_reduce;
  int64_t hosts = 0, ranks = 0;
  const profiler::LogGrid* seconds = nullptr;
};

// The most similar timed collective: of the same kind, equally spread, with the most ranks up to the group's.
std::optional<Timed> nearest_timed(const profiler::KernelTables& own, CollectiveKind kind,
                                   const GroupPlace& group, const ClusterSpec& cluster) {
  const size_t level = level_of_blocks(cluster, group.extent);
  std::optional<Timed> nearest;
  std::tuple<bool, bool, int64_t> nearness;
  for (const auto& measured : own.collective_of_hosts) {
    const auto& by_operation = measured.second;
    const auto hosts = measured.first[0], ranks = measured.first[1];
    const int64_t extent = hosts * cluster.devices_per_node;
    if (ranks / hosts > cluster.devices_per_node || level_of_blocks(cluster, extent) != level) continue;
    const bool alike = ranks * group.extent == group.ranks * extent;
    const auto consider = [&](CollectiveKind timed) {
      const auto found = by_operation.find(enum_name(timed));
      if (found == by_operation.end()) return;
      const std::tuple<bool, bool, int64_t> this_near{timed == kind, alike,
                                                      ranks > group.ranks ? -ranks : ranks};
      if (nearest && this_near <= nearness) return;
      nearest = Timed{timed, hosts, ranks, &found->second};
      nearness = this_near;
    };
    if (!is_ring(kind)) consider(kind);
    for (const CollectiveKind ring : kRings)
      if (is_ring(kind)) consider(ring);
  }
  return nearest;
}

}  // namespace

std::optional<double> measured_over_formula(const profiler::KernelTables& own, CollectiveKind kind,
                                            int64_t bytes, const GroupPlace& group,
                                            const ClusterSpec& cluster) {
  if (own.collective_of_hosts.empty() || cluster.mixed()) return std::nullopt;
  // Inside a node hosts do not matter: its measured times have a separate table.
  if (group.extent <= cluster.devices_per_node) return std::nullopt;
  const auto timed = nearest_timed(own, kind, group, cluster);
  if (!timed) return std::nullopt;
  const ClusterSpec alone = with_ranks_per_host(cluster, timed->ranks / timed->hosts);
  const double by_formula = collective_s(timed->kind, bytes, {timed->ranks, timed->ranks}, alone);
  if (!(by_formula > 0.0)) return std::nullopt;
  return timed->seconds->at({double(bytes), 1.0, 1.0}) / by_formula;
}

}  // namespace mpt::planner
