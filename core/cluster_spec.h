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
  std::string name;  // "h100-sxm-80gb", or the CPU's model name
  DeviceKind kind = DeviceKind::cpu;
  int64_t memory_bytes = 0;  // of one device; for CPU ranks the share of one rank
  double memory_bandwidth_bytes_per_s = 0.0;
  double fp32_flop_per_s =
      0.0;  // dense peak; on GPUs the rate of the fastest fp32-accumulating path for fp32 data
  double bf16_flop_per_s = 0.0;             // dense peak; fp16 runs at the same rate
  double fp8_flop_per_s = 0.0;              // dense peak; 0 where the device has no fp8
  double fp4_flop_per_s = 0.0;              // dense peak of NVFP4; 0 where the device has none
  bool mxfp8 = false;                       // multiplies fp8 with a scale for every 32 values
  int64_t compute_capability = 0;           // of NVIDIA's GPUs, 90 for 9.0; 0: unknown
  double host_bandwidth_bytes_per_s = 0.0;  // each way to the host's memory; 0: unknown, no offload
  double power_w = 0.0;                     // limit of the whole device; 0: unknown
  // Which measured kernel times price it (profiler/hardware/kernels), and how fast it is against them. Empty:
  // its own name's, if there are any.
  std::string kernels = "";
  double kernel_rate = 1.0;

  bool operator==(const DeviceSpec&) const = default;

  static void describe(auto& v) {
    using T = DeviceSpec;
    v.field("name", &T::name, "name of the device");
    v.field("kind", &T::kind, "cpu or gpu");
    v.field("memory_bytes", &T::memory_bytes, "memory of one device", between(1, 1e15));
    v.field("memory_bandwidth_bytes_per_s", &T::memory_bandwidth_bytes_per_s, "peak", between(1, 1e16));
    v.field("fp32_flop_per_s", &T::fp32_flop_per_s, "dense peak", between(1, 1e19));
    v.field("bf16_flop_per_s", &T::bf16_flop_per_s, "dense peak", between(1, 1e19));
    v.field("fp8_flop_per_s", &T::fp8_flop_per_s, "dense peak; 0 without fp8",
            optional_field(between(0, 1e19)));
    v.field("fp4_flop_per_s", &T::fp4_flop_per_s, "dense peak of NVFP4; 0 without it",
            optional_field(between(0, 1e19)));
    v.field("mxfp8", &T::mxfp8, "multiplies fp8 with a scale for every 32 values (from Blackwell on)",
            optional_field());
    v.field("compute_capability", &T::compute_capability, "of NVIDIA's GPUs: 90 for 9.0",
            rare_field(between(0, 999)));
    v.field("host_bandwidth_bytes_per_s", &T::host_bandwidth_bytes_per_s, "to the host's memory, each way",
            optional_field(between(0, 1e15)));
    v.field("power_w", &T::power_w, "power limit in watts", optional_field(between(0, 1e5)));
    v.field("kernels", &T::kernels, "device whose measured kernel times price it; empty: its own",
            optional_field());
    v.field("kernel_rate", &T::kernel_rate, "its speed against those", optional_field(between(1e-3, 100)));
  }
};

/// One level of the network, innermost first: within a level, `group_size` devices reach each other.
struct LinkLevel {
  std::string name;                    // "nvlink", "infiniband", "shared-memory"
  int64_t group_size = 1;              // devices that this level connects
  double latency_s = 0.0;              // of one message step
  double bandwidth_bytes_per_s = 0.0;  // per device and direction
  // Devices below one port of this level (a node, or a whole block of the level inside) leave it by `rails`
  // ports of that bandwidth, 0: one for each device; by `oversubscription` fewer lines go on from there.
  int64_t rails = 0;
  double oversubscription = 1.0;
  // Devices of which each pair has links of its own, as many as `bandwidth_bytes_per_s` is the sum of; 0: a
  // switch.
  int64_t mesh = 0;

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
  bool operator==(const LinkLevel&) const = default;

  static void describe(auto& v) {
    using T = LinkLevel;
    v.field("name", &T::name, "name of the level");
    v.field("group_size", &T::group_size, "devices that this level connects", between(1, 10'000'000));
    v.field("latency_s", &T::latency_s, "seconds of one message step", between(0, 10));
    v.field("bandwidth_bytes_per_s", &T::bandwidth_bytes_per_s, "per port and direction", between(1, 1e15));
    v.field("rails", &T::rails, "network cards that a block of the level inside shares; 0: one per device",
            optional_field(between(0, 10'000'000)));
    v.field("oversubscription", &T::oversubscription, "how oversubscribed the switch is",
            optional_field(between(1, 1000)));
    v.field("mesh", &T::mesh, "devices of which each pair has links of its own; 0: all send through a switch",
            optional_field(between(0, 10'000'000)));
  }
};

/// Nodes of one kind in a cluster of several kinds.
struct DeviceGroup {
  std::string name;  // "dgx-a100:8"
  DeviceSpec device;
  int64_t devices = 1;
  int64_t devices_per_node = 1;
  std::vector<LinkLevel> levels;  // its own network

  bool operator==(const DeviceGroup&) const = default;

  static void describe(auto& v) {
    using T = DeviceGroup;
    v.field("name", &T::name, "name of the group");
    v.field("device", &T::device, "its device");
    v.field("devices", &T::devices, "its devices", between(1, 10'000'000));
    v.field("devices_per_node", &T::devices_per_node, "devices of one node", between(1, 10'000'000));
    v.field("levels", &T::levels, "its network, innermost level first");
  }
};
inline constexpr size_t kMostGroups = 4;

struct ClusterSpec {
  std::string name;   // as given: "dgx-h100:8", "this-machine:4"
  DeviceSpec device;  // with groups: what every device has at least
  int64_t devices = 1;
  int64_t devices_per_node = 1;
  int64_t cores_per_node = 0;     // CPU ranks share these; 0 where it does not matter
  std::vector<LinkLevel> levels;  // with groups: the last one joins them
  // Groups of different devices, in the order in which ranks are numbered; empty where all are alike.
  std::vector<DeviceGroup> groups;
  // Devices of one operating system, where a node (a domain of fast links) has several of these. 0: the
  // node's.
  int64_t devices_per_host = 0;
  int64_t host_memory_bytes = 0;  // of one operating system; 0: unknown

  bool mixed() const { return !groups.empty(); }
  /// How many of `ranks` one operating system has at most.
  int64_t ranks_of_host(int64_t ranks) const {
    return std::min(devices_per_host > 0 ? devices_per_host : devices_per_node, ranks);
  }
  bool operator==(const ClusterSpec&) const = default;

  static void describe(auto& v) {
    using T = ClusterSpec;
    v.field("name", &T::name, "name of the cluster");
    v.field("device", &T::device, "the device; with groups, what every device has at least");
    v.field("devices", &T::devices, "devices in all", between(1, 10'000'000));
    v.field("devices_per_node", &T::devices_per_node, "devices of one node", between(1, 10'000'000));
    v.field("cores_per_node", &T::cores_per_node, "CPU cores that CPU ranks share", between(0, 1 << 20));
    v.field("levels", &T::levels, "network, innermost level first");
    v.field("groups", &T::groups, "groups of different devices, in the order of rank numbers",
            optional_field());
    v.field("devices_per_host", &T::devices_per_host, "devices of one operating system; 0: all of a node",
            rare_field(between(0, 10'000'000)));
    v.field("host_memory_bytes", &T::host_memory_bytes, "memory of one operating system; 0: unknown",
            rare_field(between(0, 1e15)));
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
