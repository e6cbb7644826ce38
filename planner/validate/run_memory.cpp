// SPDX-License-Identifier: Apache-2.0
#include "planner/validate/run_memory.h"

#include <algorithm>
#include <regex>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/quantity.h"
#include "planner/memory/memory_model.h"

namespace mpt::planner {
namespace {

// Layers whose activations wait in the host's memory, on their way there and back beside compute: as many as
// published, or else as it takes where Megatron's FSDP runs beside Grace, whose recipes offload in place of
// recompute (NVIDIA-NeMo/Megatron-Bridge, scripts/performance, cpu_offloading_num_layers). It takes one stage
// (megatron/core/transformer/transformer_config.py), and two layers stay: one at work, one on its way.
int64_t offloaded_layers(const RunRecord& run, const Layout& l, int64_t excess_bytes, int64_t layer_bytes) {
  static const std::regex number(R"re(cpu_offloading_num_layers":\s*"?(\d{1,6}))re");
  if (l.pipeline > 1 || l.recompute != Recompute::none) return 0;
  const int64_t most = std::max<int64_t>(0, run.model.layers - 2);
  std::smatch found;
  if (finds(run.options, found, number)) return std::min<int64_t>(most, std::stoll(found[1]));
  const bool open = !run.recompute && l.zero == 3 && l.execution.framework == "megatron-bridge" &&
                    (run.gpu.starts_with("gb200") || run.gpu.starts_with("gb300"));
  const int64_t needed = (excess_bytes + layer_bytes - 1) / layer_bytes;
  return open && needed <= most ? std::max<int64_t>(0, needed) : 0;
}

// Megatron-LM's modules of a layer, whose saved tensors `offload-modules` sends to the host's memory, and our
// operators of them (megatron/core/pipeline_parallel/fine_grained_activation_offload.py).
struct OffloadedOperator {
  const char* module;
  std::string_view name;
};
constexpr OffloadedOperator kOffloadedOperators[] = {{"attn_norm", "attention.norm"},
                                                     {"qkv_linear", "attention.qkv"},
                                                     {"qkv_linear", "attention.query_down"},
                                                     {"qkv_linear", "attention.query_up"},
                                                     {"qkv_linear", "attention.key_value_down"},
                                                     {"qkv_linear", "attention.key_value_up"},
                                                     {"core_attn", "attention.core"},
                                                     {"attn_proj", "attention.output"},
                                                     {"mlp_norm", "mlp.norm"},
                                                     {"expert_fc1", "mlp.experts_up"},
                                                     {"moe_act", "mlp.experts_activation"}};

std::vector<std::string_view> offloaded_operators(const RunRecord& run) {
  static const std::regex modules(R"re("offload-modules":\s*"([^"]*)")re");
  std::smatch named;
  std::vector<std::string_view> names;
  if (!mentions(run.options, "\"fine-grained-activation-offloading\":true") ||
      !finds(run.options, named, modules))
    return names;
  for (const OffloadedOperator& op : kOffloadedOperators) {
    if (mentions(named[1].str(), op.module)) names.push_back(op.name);
  }
  return names;
}

}  // namespace

int64_t offload_activations(const RunRecord& run, const SearchProblem& problem, const Estimate& e,
                            Evaluation& evaluation) {
  if (e.layout.pipeline > 1) return 0;
  const models::StagePieces pieces(problem.model, e.layout, problem.workload.sequence);
  const auto kept = size_t(Recompute::none);
  const int64_t layer_bytes =
      (e.footprints.front().saved_bytes - pieces.embedding().kept[kept] - pieces.head().kept[kept]) /
      problem.model.layers;
  const int64_t layers = offloaded_layers(run, e.layout, evaluation.peak_bytes - problem.memory_limit_bytes,
                                          std::max<int64_t>(1, layer_bytes));
  RankMemory& memory = evaluation.memory.front();
  memory.peak_bytes -= layers * layer_bytes;
  memory.activation_peak_bytes -= layers * layer_bytes;
  evaluation.peak_bytes = memory.peak_bytes;
  if (memory.peak_bytes <= problem.memory_limit_bytes) evaluation.rejection.reset();
  return layers;
}

bool offloads_modules(const RunRecord& run) { return !offloaded_operators(run).empty(); }

void offload_modules(const RunRecord& run, const SearchProblem& problem, Estimate& e) {
  const std::vector<std::string_view> away = offloaded_operators(run);
  if (away.empty()) return;
  const models::LayerProgram layer =
      models::layer_program(problem.model, problem.model.layers - 1, e.layout, problem.workload.sequence);
  const bool selective = e.layout.recompute == Recompute::selective;
  int64_t kept = 0, whole = 0;
  for (const models::Operator& op : layer.operators) {
    if (std::find(away.begin(), away.end(), op.name) == away.end()) continue;
    kept += selective ? op.saved_bytes_selective : op.saved_bytes;
    whole += op.saved_bytes;
  }
  // The layer whose backward comes first stays, and each reload runs one layer ahead.
  std::vector<StageFootprint> footprints = e.footprints;
  for (size_t s = 0; s < footprints.size(); ++s) {
    StageFootprint& f = footprints[s];
    const bool last = s + 1 == footprints.size();
    const int64_t layers = e.layout.layers_per_stage[s] + (last ? problem.model.next_token_layers : 0);
    const int64_t in_host = std::min(f.saved_bytes, layers * kept);
    f.saved_bytes -= in_host;
    f.saved_for_weight_bytes = std::min(f.saved_for_weight_bytes, f.saved_bytes);
    if (layers == 0) continue;
    f.forward_workspace_bytes += whole;
    f.backward_workspace_bytes += whole;
  }
  e = estimate(problem, e.layout, std::move(footprints), std::move(e.cost));
}

// ZB-1p and ZB-2p fill every stage with pending work up to the activations of one or two micro-batches per
// rank, counted in those of the larger of the first two stages (sail-sg/zero-bubble, zerobubble/runtime.py,
// zero_bubble_max_pending_backward). Behind an input gradient only the products' operands are pending.
void fill_pending_work(const RunRecord& run, const Estimate& e, int64_t micro_batches,
                       std::vector<RankMemory>& memory) {
  const int64_t per_rank = mentions(run.schedule, "zb-1p") ? 1 : mentions(run.schedule, "zb-2p") ? 2 : 0;
  if (per_rank == 0 || e.footprints.size() < 2 || memory.size() != e.footprints.size()) return;
  const int64_t limit =
      per_rank * e.layout.pipeline * std::max(e.footprints[0].saved_bytes, e.footprints[1].saved_bytes);
  for (size_t s = 0; s < memory.size(); ++s) {
    const StageFootprint& f = e.footprints[s];
    const int64_t pending = std::min(limit, micro_batches * f.saved_bytes);
    memory[s].peak_bytes = std::max(memory[s].peak_bytes, f.static_bytes() + memory[s].transfer_buffer_bytes +
                                                              pending + f.input_gradient_workspace_bytes);
  }
}

namespace {

// Which rank's memory the source gives: the fullest unless it says otherwise.
std::pair<size_t, size_t> measured_ranks(const RunRecord& run, size_t ranks) {
  if (mentions(run.notes, "last rank") || mentions(run.framework, "CI golden values"))
    return {ranks - 1, ranks};
  // Only rank 0 writes the row of a benchmark (huggingface/nanotron, log_throughput in helpers.py).
  if (mentions(run.framework, "nanotron")) return {0, 1};
  if (mentions(run.notes, "first node") && run.stages.size() == ranks) {
    size_t end = 0;
    for (int64_t gpus = 0; end < ranks && gpus < run.gpus_per_node; ++end) gpus += run.stages[end].gpus;
    return {0, std::max<size_t>(end, 1)};
  }
  return {0, ranks};
}

}  // namespace

MemoryReading memory_reading(const RunRecord& run, size_t ranks) {
  MemoryReading reading;
  std::tie(reading.first, reading.end) = measured_ranks(run, ranks);
  reading.whole_device = mentions(run.notes, "nvidia-smi") ||
                         mentions(run.notes, "how measured is not stated") || run.family == "flagperf";
  // torchtitan prints what its allocator has reserved (torchtitan/components/metrics.py).
  reading.reserved =
      reading.whole_device || mentions(run.notes, "reserved memory") || mentions(run.framework, "torchtitan");
  return reading;
}

double peak_gib(const RunRecord& run, const Execution& e, const DeviceSpec& device,
                const std::vector<RankMemory>& memory) {
  int64_t bytes = 0;
  const MemoryReading reading = memory_reading(run, memory.size());
  for (size_t r = reading.first; r < reading.end; ++r) bytes = std::max(bytes, memory[r].peak_bytes);
  double gib = double(bytes) / double(kGiB);
  const double cached = reading.reserved ? gib * e.allocator_cache : 0.0;
  if (reading.reserved) gib *= 1.0 + e.allocator_slack;
  if (reading.whole_device) gib += e.context_gib;
  // The cache is given back where the device is full.
  return std::max(gib, std::min(gib + cached, double(device.memory_bytes) / double(kGiB)));
}

}  // namespace mpt::planner
