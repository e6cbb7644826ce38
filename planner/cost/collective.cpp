// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/collective.h"

#include <bit>
#include <cmath>

namespace mpt::planner {
namespace {

using models::CollectiveKind;
using models::CopyRoute;

CollectiveShape ring(int64_t ranks) { return {ranks - 1, double(ranks - 1) / double(ranks)}; }
CollectiveShape ring_all_reduce(int64_t ranks) {
  return {2 * (ranks - 1), 2.0 * double(ranks - 1) / double(ranks)};
}
CollectiveShape double_tree(int64_t ranks) {
  return {2 * int64_t(std::bit_width(uint64_t(ranks - 1))), 2.0};  // bit_width(n - 1) = ceil(log2(n))
}

constexpr CollectiveAlgorithm kAlgorithms[] = {
    {CollectiveKind::all_reduce, "ring", ring_all_reduce},
    {CollectiveKind::all_reduce, "double tree", double_tree},
    {CollectiveKind::all_gather, "ring", ring},
    {CollectiveKind::reduce_scatter, "ring", ring},
};

// Extent of the ranks of one stage. With data outermost, whole pipelines are between them.
int64_t stage_extent(const Layout& layout) {
  const int64_t own = layout.tensor * layout.context * layout.data;
  return layout.order == RankOrder::data_outermost && layout.data > 1 ? own * layout.pipeline : own;
}

// Ways to choose k of n.
double binomial(int64_t n, int64_t k) {
  if (k < 0 || k > n) return 0.0;
  double ways = 1.0;
  for (int64_t i = 0; i < k; ++i) ways *= double(n - i) / double(i + 1);
  return ways;
}

// Probability that none of a row's copies goes to a given one of equal blocks of destinations.
double passed_over(double blocks, const CopyRoute& route) {
  const auto copies = double(route.copies), groups = double(route.groups),
             chosen = double(route.groups_of_row);
  if (blocks >= groups) {  // the block is within one group
    return 1.0 - chosen / groups + chosen / groups * std::pow(1.0 - groups / (chosen * blocks), copies);
  }
  // Sum over the possible numbers of chosen groups in the block (hypergeometric distribution).
  const auto inside = int64_t(std::lround(groups / blocks));
  double none = 0.0, ways = 0.0;
  for (int64_t here = 0; here <= std::min(inside, route.groups_of_row); ++here) {
    const double these = binomial(inside, here) * binomial(route.groups - inside, route.groups_of_row - here);
    ways += these;
    none += these * std::pow(1.0 - double(here) / chosen, copies);
  }
  return none / ways;
}

// The share of a row's copies that goes to other blocks if a block gets each row at most once.
double share_to_others(double blocks, const CopyRoute& route) {
  return (blocks - 1.0) * (1.0 - passed_over(blocks, route)) / double(route.copies);
}

int64_t members_of_block(const GroupPlace& group, int64_t block) {
  return std::clamp<int64_t>(block * group.ranks / group.extent, 1, group.ranks);
}

}  // namespace

std::span<const CollectiveAlgorithm> collective_algorithms() { return kAlgorithms; }

GroupPlace tensor_group(const Layout& layout) { return {layout.tensor, layout.tensor}; }
GroupPlace context_group(const Layout& layout) { return {layout.context, layout.tensor * layout.context}; }

GroupPlace data_group(const Layout& layout) { return {layout.replicas(), stage_extent(layout)}; }

GroupPlace expert_parallel_group(const Layout& layout) {
  const int64_t own = layout.expert * layout.expert_split();
  const bool beyond = own > layout.tensor * layout.context && layout.order == RankOrder::data_outermost;
  return {models::sends_to_parts(layout) ? own : layout.expert, beyond ? own * layout.pipeline : own};
}

GroupPlace expert_data_group(const Layout& layout) {
  return {layout.expert_replicas(), stage_extent(layout)};
}

GroupPlace all_ranks(const Layout& layout) { return {layout.ranks(), layout.ranks()}; }

double group_bandwidth_bytes_per_s(const ClusterSpec& cluster, const GroupPlace& group) {
  const size_t outermost = level_of_blocks(cluster, group.extent);
  const LinkLevel& innermost = cluster.levels.front();
  double bandwidth = innermost.bandwidth_among_bytes_per_s(members_of_block(group, innermost.group_size)) /
                     innermost.oversubscription;
  for (size_t l = 1; l <= outermost; ++l) {
    // All groups along the axis communicate at once. Each has its members' share of the block's ports.
    const int64_t block = cluster.levels[l - 1].group_size;
    const int64_t members = members_of_block(group, block);
    const double share = double(members) / double(std::max(block, members));
    bandwidth = std::min(bandwidth, share * cluster.levels[l].uplink_bytes_per_s(std::max(block, members)));
  }
  return bandwidth;
}

double exchange_s(int64_t bytes, const CopyRoute& route, const GroupPlace& group,
                  const ClusterSpec& cluster) {
  if (group.ranks <= 1) return 0.0;
  const size_t outermost = level_of_blocks(cluster, group.extent);
  const auto n = double(group.ranks);
  const LinkLevel& innermost = cluster.levels.front();
  double longest = double(bytes) * share_to_others(n, route) * innermost.oversubscription /
                   innermost.bandwidth_among_bytes_per_s(members_of_block(group, innermost.group_size));
  for (size_t l = 1; l <= outermost; ++l) {
    const int64_t block = cluster.levels[l - 1].group_size;
    const double blocks = n / double(members_of_block(group, block));
    // All ranks of a block send at once, each with different rows.
    longest = std::max(longest, double(bytes) * share_to_others(blocks, route) /
                                    cluster.levels[l].sender_bytes_per_s(block, block));
  }
  return (n - 1.0) * cluster.levels[outermost].latency_s + longest;
}

double sent_once_share(int64_t ranks, const CopyRoute& route) {
  if (ranks <= 1) return 1.0;
  const auto n = double(ranks);
  return n / (n - 1.0) * share_to_others(n, route);
}

double collective_s(CollectiveKind kind, int64_t bytes, const GroupPlace& group, const ClusterSpec& cluster) {
  if (group.ranks <= 1) return 0.0;
  if (kind == CollectiveKind::all_to_all) return exchange_s(bytes, {}, group, cluster);
  const double latency_s = cluster.levels[level_of_blocks(cluster, group.extent)].latency_s;
  const double bandwidth = group_bandwidth_bytes_per_s(cluster, group);
  double fastest = std::numeric_limits<double>::infinity();
  for (const CollectiveAlgorithm& algorithm : kAlgorithms) {
    if (algorithm.kind != kind) continue;
    const CollectiveShape shape = algorithm.shape(group.ranks);
    fastest =
        std::min(fastest, double(shape.steps) * latency_s + shape.message_share * double(bytes) / bandwidth);
  }
  return fastest;
}

double message_s(int64_t bytes, int64_t first, int64_t last, int64_t senders, const ClusterSpec& cluster) {
  const auto [level, block] = link_of_ranks(cluster, first, last);
  const double bandwidth = std::min(level->sender_bytes_per_s(block, std::min(block, senders)),
                                    level->bandwidth_among_bytes_per_s(2));
  return level->latency_s + double(bytes) / bandwidth;
}

}  // namespace mpt::planner
