// SPDX-License-Identifier: Apache-2.0
#pragma once

// The cost of a collective by formula: steps x latency + bytes / bandwidth of the algorithms that
// communication libraries use, on the network level of the group. docs/collectives.md has the table and its
// sources; a test compares the page with this code.

#include <cstdint>
#include <span>

#include "core/cluster_spec.h"
#include "core/layout.h"
#include "models/layer_operators.h"

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

/// The place of a group: `ranks` members, evenly spread over a block of `extent` consecutive ranks that
/// starts at a multiple of `extent`. It represents all groups along an axis.
struct GroupPlace {
  int64_t ranks = 1;
  int64_t extent = 1;
};
GroupPlace tensor_group(const Layout& layout);
GroupPlace context_group(const Layout& layout);
/// Replicas of dense weights: the data x context ranks of a stage.
GroupPlace data_group(const Layout& layout);
/// Ranks between which tokens go to their experts; then the replicas of one expert.
GroupPlace expert_parallel_group(const Layout& layout);
GroupPlace expert_data_group(const Layout& layout);
GroupPlace all_ranks(const Layout& layout);

/// Bytes per second at which each member of the group sends. Between nodes a group has the ports of all its
/// members in a node (NCCL makes as many rings as there are ports); inside a node it has the node's links.
double group_bandwidth_bytes_per_s(const ClusterSpec& cluster, const GroupPlace& group);

/// Seconds of the fastest algorithm; `bytes` is the whole message, as nccl-tests counts it.
double collective_s(models::CollectiveKind kind, int64_t bytes, const GroupPlace& group,
                    const ClusterSpec& cluster);

/// Seconds of an all-to-all: each rank sends a share of its `bytes` to each other rank. Rows to other nodes
/// go through the rank's share of its node's ports. With more than one copy, `route` gives the copies of each
/// row, which go to random ranks. At most one goes to each node, and there at most one to each rank (DeepEP,
/// HybridEP).
double exchange_s(int64_t bytes, const models::CopyRoute& route, const GroupPlace& group,
                  const ClusterSpec& cluster);
/// The share of those bytes that remains if each rank gets a row at most once.
double sent_once_share(int64_t ranks, const models::CopyRoute& route);

/// Seconds of one message from rank `first` to rank `last`, while up to `senders` neighbours of the first
/// rank send at the same time.
double message_s(int64_t bytes, int64_t first, int64_t last, int64_t senders, const ClusterSpec& cluster);

}  // namespace mpt::planner
