// SPDX-License-Identifier: Apache-2.0
#pragma once

// ClusterSpec: the machines that a plan is made for. It is a plain value inside a plan. The catalog of GPUs
// and nodes is in profiler/hardware/.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/fields.h"

namespace mpt {

/// One GPU of the machine, as the driver shows it.
struct GpuDescription {
#include "generated/GpuDescription.inc"
};

enum class DeviceKind { cpu, gpu };

struct DeviceSpec {
#include "generated/DeviceSpec.inc"
};

/// One level of the network, innermost first. Within a level, `group_size` devices reach each other.
struct LinkLevel {
#include "generated/LinkLevel.inc"

  /// Bytes per second that each of `ranks` devices can send to the others of them at once. For a single rank:
  /// to devices outside.
  double bandwidth_among_bytes_per_s(int64_t ranks) const {
    return bandwidth_bytes_per_s * (ranks > 1 && ranks < mesh ? double(ranks - 1) / double(mesh - 1) : 1.0);
  }
  /// Bytes per second that `block` devices of the level inside can send out together.
  double uplink_bytes_per_s(int64_t block) const {
    return double(rails > 0 ? std::min(rails, block) : block) * bandwidth_bytes_per_s / oversubscription;
  }
  /// Bytes per second of each of `senders` devices of the block when all of them send at once.
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
  /// The nodes that so many ranks fill.
  int64_t nodes_of(int64_t ranks) const { return (ranks + devices_per_node - 1) / devices_per_node; }
  /// The largest number of `ranks` that run under one operating system.
  int64_t ranks_of_host(int64_t ranks) const {
    return std::min(devices_per_host > 0 ? devices_per_host : devices_per_node, ranks);
  }
};

/// A defect that single fields cannot show: networks without levels, groups that do not add up. `at` is a
/// JSON pointer into the cluster.
struct ClusterDefect {
  std::string at, found, allowed;
};
std::vector<ClusterDefect> cluster_defects(const ClusterSpec& cluster);

/// One cluster of several, joined by a link that each of them has once.
ClusterSpec join_clusters(const std::string& as, const std::vector<ClusterSpec>& parts, const LinkLevel& by);
/// The cluster with its groups in another order, or with some of them. With one group it is no longer mixed.
ClusterSpec with_groups(const ClusterSpec& cluster, const std::vector<DeviceGroup>& groups);
/// The cluster as the ranks of one group see it: the group's device and network, and the joining link. A
/// level counts only as far as blocks of every group are within it.
ClusterSpec group_view(const ClusterSpec& cluster, size_t group);
/// Index of the group that holds the rank.
size_t group_of_rank(const ClusterSpec& cluster, int64_t rank);

/// Index of the innermost level that contains every block of `extent` consecutive ranks; blocks start at
/// multiples of `extent`. Groups of a rank grid that are spread over such blocks communicate over this level.
/// The outermost level if none contains all blocks.
size_t level_of_blocks(const ClusterSpec& cluster, int64_t extent);

/// The innermost level that contains ranks `first` to `last`, and the number of devices that share its ports.
struct LinkPlace {
  const LinkLevel* level = nullptr;
  int64_t block = 1;
};
LinkPlace link_of_ranks(const ClusterSpec& cluster, int64_t first, int64_t last);

}  // namespace mpt
