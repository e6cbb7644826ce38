// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a collective costs by formula: steps x latency + bytes / bandwidth of the algorithms that
// communication libraries use, on the level of the network where the group lies. docs/collectives.md has the
// table and its sources; a test holds the page to this code.

#include <cstdint>
#include <span>

#include "core/cluster_spec.h"
#include "core/layout.h"
#include "models/layer_program.h"

namespace mpt::planner {

/// Steps on the critical path, and bytes that each rank sends as a share of the message.
struct CollectiveShape {
  int64_t steps = 0;
  double message_share = 0.0;
};

struct CollectiveAlgorithm {
  models::CollectiveKind kind;
  const char* name;
  CollectiveShape (*shape)(int64_t ranks);
};
std::span<const CollectiveAlgorithm> collective_algorithms();

/// Where a group lies: `ranks` members, evenly spread over a block of `extent` consecutive ranks that starts
/// at a multiple of it. One representative of all groups along an axis.
struct GroupPlace {
  int64_t ranks = 1;
  int64_t extent = 1;
};
GroupPlace tensor_group(const Layout& layout);
GroupPlace context_group(const Layout& layout);
/// Replicas of dense weights: the data x context ranks of a stage.
GroupPlace data_group(const Layout& layout);
/// Ranks between which tokens go to their experts, and replicas of one expert.
GroupPlace expert_parallel_group(const Layout& layout);
GroupPlace expert_data_group(const Layout& layout);
GroupPlace all_ranks(const Layout& layout);

/// Bytes per second at which each member of the group sends. Between nodes a group has the ports of all its
/// members in a node (NCCL makes as many rings as there are ports); inside it has its links.
double group_bandwidth_bytes_per_s(const ClusterSpec& cluster, const GroupPlace& group);

/// Seconds of the fastest algorithm; `bytes` is the whole message, as nccl-tests counts it.
double collective_s(models::CollectiveKind kind, int64_t bytes, const GroupPlace& group,
                    const ClusterSpec& cluster);

/// Seconds of an all-to-all: each rank sends a share of its `bytes` to each other one, those to other nodes
/// through its share of its own node's ports. With more than one copy, every row comes as often as `route`
/// says and goes to ranks at random, but once at most to each node, and there once to each rank (DeepEP,
/// HybridEP).
double exchange_s(int64_t bytes, const models::CopyRoute& route, const GroupPlace& group,
                  const ClusterSpec& cluster);
/// Of those bytes, the share that is left where each rank gets a row once at most.
double sent_once_share(int64_t ranks, const models::CopyRoute& route);

/// Seconds of one message from rank `first` to rank `last`, where as many as `senders` of the ranks beside
/// the first one send theirs at the same time.
double message_s(int64_t bytes, int64_t first, int64_t last, int64_t senders, const ClusterSpec& cluster);

}  // namespace mpt::planner
