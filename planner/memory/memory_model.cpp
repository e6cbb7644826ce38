// SPDX-License-Identifier: Apache-2.0
#include "planner/memory/memory_model.h"

#include "base/quantity.h"
#include "core/activation_peaks.h"
#include "core/gpu_memory.h"
#include "core/lower.h"
#include "core/rank_grid.h"
#include "core/schedule_catalog.h"
#include "models/footprint.h"
#include "models/parameter_count.h"
#include "models/rank_groups.h"

namespace mpt::planner {

namespace {

// Divides each rank's peak: parameters, gradients, optimizer state and transfer buffers; the rest is
// activations.
std::vector<RankMemory> split(const std::vector<int64_t>& peaks, std::span<const int> rank_of_stage,
                              std::span<const StageSlots> slots,
                              const std::vector<StageFootprint>& footprints) {
  std::vector<RankMemory> memory(peaks.size());
  for (size_t s = 0; s < footprints.size(); ++s) {
    RankMemory& m = memory[size_t(rank_of_stage[s])];
    m.parameter_bytes += footprints[s].parameter_bytes;
    m.gradient_bytes += footprints[s].gradient_bytes;
    m.optimizer_bytes += footprints[s].optimizer_bytes;
    m.transfer_buffer_bytes += slots[s].total() * footprints[s].slot_bytes();
  }
  for (size_t r = 0; r < memory.size(); ++r) {
    RankMemory& m = memory[r];
    m.rank = int64_t(r);
    m.peak_bytes = peaks[r];
    m.activation_peak_bytes =
        peaks[r] - m.parameter_bytes - m.gradient_bytes - m.optimizer_bytes - m.transfer_buffer_bytes;
  }
  return memory;
}

}  // namespace

std::vector<RankMemory> rank_memory(const StepProgram& program, const std::vector<StageFootprint>& stages) {
  return split(peak_bytes(program), program.rank_of_stage, program.slots, stages);
}

std::vector<RankMemory> rank_memory(const Schedule& schedule, const std::vector<StageFootprint>& footprints) {
  return split(peak_bytes(schedule, footprints), schedule.rank_of_stage, transfer_slots(schedule),
               footprints);
}

void MemoryFloor::add(const StageFootprint& f) {
  statics += f.static_bytes();
  late += f.late_gradient_bytes;
  const int64_t backward = f.late_gradient_bytes > 0 ? 0 : f.backward_workspace_bytes;
  activations = std::max(activations, f.saved_bytes + std::max(f.forward_workspace_bytes, backward));
}

std::vector<int64_t> memory_floors(const Layout& layout, std::span<const int> rank_of_stage,
                                   const std::vector<StageFootprint>& footprints) {
  std::vector<MemoryFloor> floors(size_t(layout.pipeline));
  for (size_t s = 0; s < footprints.size(); ++s) floors[size_t(rank_of_stage[s])].add(footprints[s]);
  return mapped<int64_t>(floors, &MemoryFloor::bytes);
}

int64_t framework_bytes(const DeviceSpec& device, const Calibration& constants) {
  return device.kind == DeviceKind::gpu ? int64_t(constants.process_gib * double(kGiB)) : 0;
}

int64_t tensor_bytes(const DeviceSpec& device, const Execution& execution, const Calibration& constants) {
  const int64_t process =
      std::max(framework_bytes(device, constants), int64_t(execution.allocator.context_gib * double(kGiB)));
  if (device.kind == DeviceKind::gpu && execution.allocator.counts_each_buffer)
    return tensors_of_pool(device.memory_bytes - process - int64_t(constants.workspace_gib * double(kGiB)));
  return int64_t(double(device.memory_bytes - process) / (1.0 + execution.allocator.allocator_slack));
}

int64_t most_tensor_bytes(const ClusterSpec& cluster, const Execution& execution,
                          const Calibration& constants) {
  return max_of<int64_t>(
      cluster.groups, tensor_bytes(cluster.device, execution, constants),
      [&](const DeviceGroup& group) { return tensor_bytes(group.device, execution, constants); });
}

int64_t exchange_buffer_bytes(const ModelSpec& model, const ClusterSpec& cluster, const Layout& layout,
                              int64_t sequence, const Calibration& constants) {
  constexpr int64_t kUsualDomain = 8;
  if (layout.expert == 1 || model.moe() == nullptr || cluster.levels.empty()) return 0;
  const int64_t near = std::min(layout.expert, cluster.levels.front().group_size / layout.expert_split());
  if (near <= kUsualDomain) return 0;
  if (!layout.execution->traffic.deduplicates_dispatch)
    return int64_t(double(near - kUsualDomain) * constants.nccl_peer_mib * double(kMiB));
  const int64_t split = layout.context * (layout.sequence_parallel ? layout.tensor : 1);
  const int64_t tokens = std::max<int64_t>(512, layout.micro_batch * sequence / split);
  const int64_t own_experts = (model.moe()->experts + layout.expert - 1) / layout.expert;
  return tokens * layout.expert * (2 * model.hidden + 4 * own_experts * near + 4 * (model.hidden / 128));
}

std::vector<int64_t> communicator_bytes(const ModelSpec& model, const ClusterSpec& cluster,
                                        const Layout& layout, int64_t sequence,
                                        const Calibration& constants) {
  std::vector<int64_t> bytes(size_t(layout.pipeline), 0);
  if (cluster.device.kind != DeviceKind::gpu) return bytes;
  if (!layout.execution->allocator.counts_each_buffer)
    return std::vector<int64_t>(bytes.size(),
                                exchange_buffer_bytes(model, cluster, layout, sequence, constants));
  const ScheduleEntry& entry = find_schedule(layout.schedule, "layout");
  const auto counts =
      models::communicator_counts(layout, entry.placement(int(layout.pipeline), int(layout.chunks)),
                                  models::trains_shared_table(model, layout));
  for (size_t p = 0; p < bytes.size(); ++p)
    bytes[p] = int64_t(double(counts[p] * kMostChannels) * constants.nccl_channel_mib * double(kMiB));
  return bytes;
}

int64_t host_build_bytes(const ModelSpec& model, const Execution& execution, const Training& training,
                         int64_t processes) {
  const int64_t each =
      execution.allocator.host_build_bytes + processes * execution.allocator.process_build_bytes;
  // Frozen weights stay in their file, which is mapped once for all processes. Where they are stored in
  // fewer bits, each goes to its device alone.
  if (each == 0 || training.frozen_format != FrozenFormat::bf16) return 0;
  return models::count_parameters(model).total * (training.adapts() ? 2 : each);
}

OffloadedBytes offloaded_bytes(const ModelSpec& model, const Layout& layout, const Workload& workload,
                               const ClusterSpec& cluster) {
  OffloadedBytes most;
  if (!layout.offload_optimizer) return most;
  const std::vector<int64_t> stages = models::host_state_bytes(model, layout, workload);
  const std::vector<int> rank_of_stage =
      find_schedule(layout.schedule, "layout").placement(int(layout.pipeline), int(layout.chunks));
  std::vector<int64_t> ranks(size_t(layout.pipeline), 0);
  for (size_t s = 0; s < stages.size(); ++s) ranks[size_t(rank_of_stage[s])] += stages[s];
  const RankGrid grid(layout);
  const int64_t each = cluster.ranks_of_host(layout.ranks()), alike = grid.stride(Axis::pipeline);
  int64_t host = 0;
  for (int64_t rank = 0, next = 0; rank < layout.ranks(); rank = next) {
    next = std::min({layout.ranks(), (rank / each + 1) * each, (rank / alike + 1) * alike});
    const int64_t bytes = ranks[size_t(rank / alike % layout.pipeline)];
    host = (rank % each == 0 ? 0 : host) + (next - rank) * bytes;
    most = {std::max(most.of_rank, bytes), std::max(most.of_host, host)};
  }
  return most;
}

double fullest_share(const std::vector<RankMemory>& memory, const std::vector<int64_t>& room_bytes) {
  return max_of<double>(memory, 0.0, [&](const RankMemory& m) {
    return double(m.peak_bytes) / double(room_bytes[size_t(m.rank)]);
  });
}

std::optional<Rejection> check_memory(const std::vector<RankMemory>& memory,
                                      const std::vector<int64_t>& limits_bytes) {
  const auto excess = [&](const RankMemory& m) { return m.peak_bytes - limits_bytes[size_t(m.rank)]; };
  const auto fullest = max_by(memory, excess);
  if (excess(*fullest) <= 0) return std::nullopt;
  const auto limit = double(limits_bytes[size_t(fullest->rank)]);
  return Rejection{
      "memory", int(fullest->rank), double(fullest->peak_bytes), limit,
      fmt::format("stage {} needs {} of {}: {}", fullest->rank, format_bytes(double(fullest->peak_bytes)),
                  format_bytes(limit), describe_memory(*fullest))};
}

std::string describe_memory(const RankMemory& m) {
  return fmt::format("weights {}, gradients {}, optimizer {}, transfer buffers {}, activations {}",
                     format_bytes(double(m.parameter_bytes)), format_bytes(double(m.gradient_bytes)),
                     format_bytes(double(m.optimizer_bytes)), format_bytes(double(m.transfer_buffer_bytes)),
                     format_bytes(double(m.activation_peak_bytes)));
}

}  // namespace mpt::planner
