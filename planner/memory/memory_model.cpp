// SPDX-License-Identifier: Apache-2.0
#include "planner/memory/memory_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/activation_peaks.h"
#include "core/quantity.h"

namespace mpt::planner {

namespace {

// Parameters, gradients and optimizer state of each rank; the rest of its peak is activations.
std::vector<RankMemory> split(const std::vector<int64_t>& peaks, std::span<const int> rank_of_stage,
                              const std::vector<StageFootprint>& footprints) {
  std::vector<RankMemory> memory(peaks.size());
  for (size_t s = 0; s < footprints.size(); ++s) {
    RankMemory& m = memory[size_t(rank_of_stage[s])];
    m.parameter_bytes += footprints[s].parameter_bytes;
    m.gradient_bytes += footprints[s].gradient_bytes;
    m.optimizer_bytes += footprints[s].optimizer_bytes;
  }
  for (size_t r = 0; r < memory.size(); ++r) {
    RankMemory& m = memory[r];
    m.rank = int64_t(r);
    m.peak_bytes = peaks[r];
    m.activation_peak_bytes = peaks[r] - m.parameter_bytes - m.gradient_bytes - m.optimizer_bytes;
  }
  return memory;
}

}  // namespace

std::vector<RankMemory> rank_memory(const StepProgram& program,
                                    const std::vector<StageFootprint>& footprints) {
  auto memory = split(peak_bytes(program), program.rank_of_stage, footprints);
  for (size_t s = 0; s < footprints.size(); ++s) {
    RankMemory& m = memory[size_t(program.rank_of_stage[s])];
    const int64_t bytes = program.slots[s].total() * footprints[s].boundary_bytes;
    m.transfer_buffer_bytes += bytes;
    m.activation_peak_bytes -= bytes;
  }
  return memory;
}

std::vector<RankMemory> rank_memory_without_slots(const Schedule& schedule,
                                                  const std::vector<StageFootprint>& footprints) {
  return split(peak_bytes_without_slots(schedule, footprints), schedule.rank_of_stage, footprints);
}

RankMemory memory_floor(const Layout& layout, std::span<const int> rank_of_stage,
                        const std::vector<StageFootprint>& footprints) {
  std::vector<RankMemory> ranks(size_t(layout.pipeline));
  for (size_t s = 0; s < footprints.size(); ++s) {
    const StageFootprint& f = footprints[s];
    RankMemory& m = ranks[size_t(rank_of_stage[s])];
    m.rank = rank_of_stage[s];
    m.parameter_bytes += f.parameter_bytes;
    m.gradient_bytes += f.gradient_bytes;
    m.optimizer_bytes += f.optimizer_bytes;
    m.activation_peak_bytes =
        std::max(m.activation_peak_bytes,
                 f.saved_bytes + std::max(f.forward_workspace_bytes, f.backward_workspace_bytes));
  }
  for (RankMemory& m : ranks)
    m.peak_bytes = m.parameter_bytes + m.gradient_bytes + m.optimizer_bytes + m.activation_peak_bytes;
  return *std::max_element(ranks.begin(), ranks.end(), [](const RankMemory& a, const RankMemory& b) {
    return a.peak_bytes < b.peak_bytes;
  });
}

int64_t framework_bytes(const DeviceSpec& device) {
  return device.kind == DeviceKind::gpu ? 3 * kGiB / 2 : 0;
}

std::optional<Rejection> check_memory(const std::vector<RankMemory>& memory, int64_t limit_bytes) {
  const auto fullest =
      std::max_element(memory.begin(), memory.end(),
                       [](const RankMemory& a, const RankMemory& b) { return a.peak_bytes < b.peak_bytes; });
  if (fullest->peak_bytes <= limit_bytes) return std::nullopt;
  return Rejection{"memory", int(fullest->rank), double(fullest->peak_bytes), double(limit_bytes),
                   fmt::format("pipeline rank {} needs {} of {}: {}", fullest->rank,
                               format_bytes(double(fullest->peak_bytes)), format_bytes(double(limit_bytes)),
                               describe_memory(*fullest))};
}

std::string describe_memory(const RankMemory& m) {
  return fmt::format("weights {}, gradients {}, optimizer {}, transfer buffers {}, activations {}",
                     format_bytes(double(m.parameter_bytes)), format_bytes(double(m.gradient_bytes)),
                     format_bytes(double(m.optimizer_bytes)), format_bytes(double(m.transfer_buffer_bytes)),
                     format_bytes(double(m.activation_peak_bytes)));
}

}  // namespace mpt::planner
