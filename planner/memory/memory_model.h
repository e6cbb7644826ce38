// SPDX-License-Identifier: Apache-2.0
#pragma once

// Memory of each pipeline rank, exact from the StepProgram's list
// order, without bounds by a formula.

#include <optional>
#include <span>
#include <vector>

#include "core/cluster_spec.h"
#include "core/layout.h"
#include "core/plan.h"
#include "core/schedule.h"
#include "core/step_program.h"
#include "planner/cost/calibration.h"

namespace mpt::planner {

std::vector<RankMemory> rank_memory(const StepProgram& program, const std::vector<StageFootprint>& stages);

/// Bytes that a rank needs under any schedule: weights, gradients, optimizer state and one micro-batch in one
/// of its stages. Late gradients may come when no micro-batch is held. Never above the exact peak.
struct MemoryFloor {
  int64_t statics = 0, late = 0, activations = 0;
  void add(const StageFootprint& stage);
  int64_t bytes() const { return statics + std::max(late, activations); }
};

/// The floor of each pipeline rank. It needs no program.
std::vector<int64_t> memory_floors(const Layout& layout, std::span<const int> rank_of_stage,
                                   const std::vector<StageFootprint>& footprints);

/// Memory that the driver, its context and the communication library hold on a GPU before any tensor. CPU
/// ranks have none. The rest of the device is the limit of a rank.
int64_t framework_bytes(const DeviceSpec& device, const Calibration& constants = shipped_calibration());

/// Bytes of a device that a rank's tensors may use: the device's memory without that of the process
/// (Execution::context_gib, at least framework_bytes), and without the part that the allocator cannot use.
/// For mpt-run also without the memory of its libraries and calls (core/gpu_memory.h).
int64_t tensor_bytes(const DeviceSpec& device, const Execution& execution,
                     const Calibration& constants = shipped_calibration());
/// The same for the largest device of a cluster.
int64_t most_tensor_bytes(const ClusterSpec& cluster, const Execution& execution,
                          const Calibration& constants = shipped_calibration());

/// Buffers of a rank that exchanges tokens with others in its domain of fast links. Only the part beyond a
/// node of 8 GPUs counts; context_gib includes that. NCCL: constants.nccl_peer_mib for each peer. If tokens
/// go once to a device (HybridEP): a slot for each token of the group, with the scores of its experts and
/// scales (deepseek-ai/DeepEP, branch hybrid-ep at 94a9f8f6, csrc/hybrid_ep/buffer/intranode.cu).
int64_t exchange_buffer_bytes(const ModelSpec& model, const ClusterSpec& cluster, const Layout& layout,
                              int64_t sequence, const Calibration& constants = shipped_calibration());

/// Buffers of communicators on each pipeline rank, in addition to tensors; known once the layout is known.
/// For mpt-run all of them, for other frameworks those that context_gib lacks. CPU ranks have none.
std::vector<int64_t> communicator_bytes(const ModelSpec& model, const ClusterSpec& cluster,
                                        const Layout& layout, int64_t sequence,
                                        const Calibration& constants = shipped_calibration());

/// Memory of a host on which `processes` build the model before ranks shard it (Allocator::host_build_bytes).
int64_t host_build_bytes(const ModelSpec& model, const Execution& execution, const Training& training,
                         int64_t processes);

/// Host memory of an offloaded optimizer, of the rank and of the host that hold most.
struct OffloadedBytes {
  int64_t of_rank = 0, of_host = 0;
};
OffloadedBytes offloaded_bytes(const ModelSpec& model, const Layout& layout, const Workload& workload,
                               const ClusterSpec& cluster);

/// The share of `room_bytes`, which excludes communicators, that the fullest rank uses.
double fullest_share(const std::vector<RankMemory>& memory, const std::vector<int64_t>& room_bytes);

/// The same before a program is made.
std::vector<RankMemory> rank_memory(const Schedule& schedule, const std::vector<StageFootprint>& footprints);

/// Compares each rank with its limit, and returns the one that exceeds it most.
std::optional<Rejection> check_memory(const std::vector<RankMemory>& memory,
                                      const std::vector<int64_t>& limits_bytes);

/// "weights 1.2 GiB, gradients ..., activations ..." of one rank.
std::string describe_memory(const RankMemory& memory);

}  // namespace mpt::planner
