// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/memory_parts.h"

#include <cmath>

#include "base/quantity.h"
#include "base/terminal.h"
#include "models/footprint.h"
#include "planner/memory/memory_model.h"

namespace mpt::planner {

Json memory_parts(const Plan& plan) {
  using models::MemoryUse;
  const Schedule schedule = schedule_from_rows(plan.schedule, "plan");
  const auto fullest = max_by(plan.prediction.memory, [](const RankMemory& m) { return m.peak_bytes; });
  const auto rank = size_t(fullest->rank);
  Layout layout = plan.layout;
  const auto memory_of = [&](MemoryUse use) {
    models::StagePieces pieces(plan.model, layout, plan.workload.sequence);
    pieces.enlarge(use);
    return rank_memory(schedule, models::stage_footprints(pieces, plan.model, layout))[rank];
  };
  // The peak is the largest of sums of parts. So its growth with a part, for little growth, is that part.
  const RankMemory all = memory_of(MemoryUse::none), gathered = memory_of(MemoryUse::gathered);
  const auto moving = [&](const RankMemory& larger) {
    return models::kPart * (larger.activation_peak_bytes - all.activation_peak_bytes);
  };
  const auto logits = moving(memory_of(MemoryUse::logits)), reduced = moving(memory_of(MemoryUse::reduced));
  const int64_t layers = all.activation_peak_bytes - logits - reduced - moving(gathered);
  const int64_t stays = models::kPart * (gathered.parameter_bytes - all.parameter_bytes);
  const DeviceSpec& device = plan.cluster.device;
  const auto beside = communicator_bytes(plan.model, plan.cluster, plan.layout, plan.workload.sequence);
  const std::pair<const char*, int64_t> parts[] = {
      {"weights", all.parameter_bytes - stays},
      {"gathered weights", stays + moving(gathered)},
      {"gradients", all.gradient_bytes + std::min<int64_t>(0, layers)},  // those that there are at the peak
      {"optimizer", all.optimizer_bytes},
      {"layers' activations", std::max<int64_t>(0, layers)},
      {"logits and loss", logits},
      {"communication buffers", all.transfer_buffer_bytes + reduced + beside[rank]},
      {"framework and context", device.memory_bytes - tensor_bytes(device, plan.layout.execution)}};
  Json rows = Json::array();
  for (const auto& [part, bytes] : parts) rows.push_back({{"part", part}, {"bytes", bytes}});
  const int64_t bucket = layout.ranks() > 1 ? layout.execution->states.bucket_bytes : 0;
  if (bucket > 0 && !layout.training->adapts())
    rows[3]["with"] = fmt::format("gradient buckets, {} bytes a weight", bucket);
  layout.execution.edit().states.whole_at_start = 0;
  const int64_t start = all.peak_bytes - memory_of(MemoryUse::none).peak_bytes;
  if (start > 0) rows[1]["with"] = format_bytes(start) + " at the start alone, before weights are sharded";
  return rows;
}

std::string describe_parts(const Plan& plan) {
  const Json rows = memory_parts(plan);
  double sum = 0.0, until = 0.0;
  for (const Json& row : rows) sum += double(row["bytes"]);
  std::string bar, legend;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Json& row = rows[i];
    constexpr int kColumns = 64;
    const char mark = "wWgoalcf"[i];
    until += double(row["bytes"]);
    bar.resize(size_t(std::lround(kColumns * until / sum)), mark);
    if (row["bytes"] == 0) continue;
    legend += fmt::format("{}{} {} {}{}", legend.empty() ? "" : ", ", mark, row["part"].get<std::string>(),
                          format_bytes(row["bytes"]),
                          row.contains("with") ? " (with " + row["with"].get<std::string>() + ")" : "");
  }
  return wrapped(bar, std::string(15, ' ')) + wrapped(legend, std::string(15, ' '));
}

}  // namespace mpt::planner
