// SPDX-License-Identifier: Apache-2.0
#include "planner/memory/memory_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/quantity.h"

namespace mpt::planner {

std::vector<RankMemory> rank_memory(const StepProgram& program,
                                    const std::vector<StageFootprint>& footprints) {
  std::vector<RankMemory> memory(size_t(program.ranks));
  const std::vector<int64_t> peaks = peak_bytes(program);
  for (int r = 0; r < program.ranks; ++r) {
    memory[size_t(r)].rank = r;
    memory[size_t(r)].peak_bytes = peaks[size_t(r)];
    memory[size_t(r)].activation_peak_bytes = peaks[size_t(r)] - program.static_bytes[size_t(r)];
  }
  for (int s = 0; s < program.stages; ++s) {
    RankMemory& m = memory[size_t(program.rank_of_stage[size_t(s)])];
    const StageFootprint& f = footprints[size_t(s)];
    m.parameter_bytes += f.parameter_bytes;
    m.gradient_bytes += f.gradient_bytes;
    m.optimizer_bytes += f.optimizer_bytes;
    m.transfer_buffer_bytes += program.slots[size_t(s)].total() * f.boundary_bytes;
  }
  return memory;
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
