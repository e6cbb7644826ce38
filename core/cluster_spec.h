// SPDX-License-Identifier: Apache-2.0
#pragma once

// ClusterSpec: the machines a plan is made for. A plain value inside a plan; the catalog of GPUs and nodes is
// knowledge and lives in profiler/hardware/.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/fields.h"

namespace mpt {

enum class DeviceKind { cpu, gpu };

struct DeviceSpec {
#include "generated/DeviceSpec.inc"
};

/// One level of the network, innermost first: within a level, `group_size` devices reach each other.
struct LinkLevel {
#include "generated/LinkLevel.inc"

  /// What each of `ranks` devices can send to the others of them at once; of one alone, to devices beyond
  /// them.
  double bandwidth_among_bytes_per_s(int64_t ranks) const {
    const double share = ranks > 1 && ranks < mesh ? double(ranks - 1) / double(mesh - 1) : 1.0;
    return share * bandwidth_bytes_per_s;
  }
  /// Bytes per second that `block` devices of the level inside can send out together.
  double uplink_bytes_per_s(int64_t block) const {
    const int64_t ports = rails > 0 ? std::min(rails, block) : block;
    return double(ports) * bandwidth_bytes_per_s / oversubscription;
  }
  /// What each of `senders` among them gets when they send at once.
  double sender_bytes_per_s(int64_t block, int64_t senders) const {
    return std::min(bandwidth_bytes_per_s, uplink_bytes_per_s(block) / double(senders));
  }
};

/// Nodes of one kind in a cluster of several kinds.
struct DeviceGroup {
#include "generated/DeviceGroup.inc"
};
inline constexpr size_t kMostGroups = 4;

struct ClusterSpec {
#include "generated/ClusterSpec.inc"

  bool mixed() const { return !groups.empty(); }
  /// How many of `ranks` one operating system has at most.
  int64_t ranks_of_host(int64_t ranks) const {
    return std::min(devices_per_host > 0 ? devices_per_host : devices_per_node, ranks);
  }
};

/// What single fields cannot tell: networks without levels, groups that do not add up. `at` is a JSON pointer
/// into the cluster.
struct ClusterDefect {
  std::string at, found, allowed;
};
std::vector<ClusterDefect> cluster_defects(const ClusterSpec& cluster);

/// One cluster of several, joined by a link that each of them has once.
ClusterSpec join_clusters(const std::string& name, const std::vector<ClusterSpec>& parts,
                          const LinkLevel& link);
/// The same groups in another order, or some of them; one alone is no longer mixed.
ClusterSpec with_groups(const ClusterSpec& cluster, const std::vector<DeviceGroup>& groups);
/// The cluster as the ranks of one group see it: its own device and network, and the joining link. A level
/// counts only as far as blocks of every group lie within it.
ClusterSpec group_view(const ClusterSpec& cluster, size_t group);
/// Index of the group that holds the rank.
size_t group_of_rank(const ClusterSpec& cluster, int64_t rank);

/// Index of the innermost level within which every block of `extent` consecutive ranks lies, blocks starting
/// at multiples of `extent`: where the groups of a rank grid talk that are spread over such blocks. The
/// outermost level if none holds them all.
size_t level_of_blocks(const ClusterSpec& cluster, int64_t extent);

/// The innermost level within which ranks `first` to `last` lie, and how many devices share its ports.
struct LinkPlace {
  const LinkLevel* level = nullptr;
  int64_t block = 1;
};
LinkPlace link_of_ranks(const ClusterSpec& cluster, int64_t first, int64_t last);

}  // namespace mpt
