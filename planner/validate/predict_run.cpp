// SPDX-License-Identifier: Apache-2.0
#include "planner/validate/predict_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <regex>
#include <utility>

#include "core/error.h"
#include "core/schedule_catalog.h"
#include "models/framework.h"
#include "planner/memory/memory_model.h"
#include "planner/search/evaluate.h"
#include "profiler/hardware/catalog.h"

namespace mpt::planner {
namespace {

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

[[noreturn]] void refuse(const std::string& field, const std::string& found, const std::string& allowed) {
  throw UserError(Problem{field, found, allowed, ""});
}

// "4 x 100 Gb/s per node", "1600 Gbps node-node", "RDMA 400 Gb/s per GPU": bytes per second out of one node
// at 90 % of the lines' rate, which NCCL reaches; 0 if the text names none.
double node_bandwidth(const std::string& text, int64_t gpus_per_node) {
  static const std::regex many(R"((\d{1,3})\s*x\s*(\d{1,4})\s*Gb)"), one(R"((\d{2,5})\s*Gb)");
  std::smatch found;
  double gigabit = 0.0;
  if (std::regex_search(text, found, many)) {
    gigabit = std::stod(found[1]) * std::stod(found[2]);
  } else if (std::regex_search(text, found, one)) {
    gigabit = std::stod(found[1]) * (has(text, "per GPU") ? double(gpus_per_node) : 1.0);
  }
  return gigabit * 1e9 / 8.0 * 0.9;
}

ClusterSpec cluster_of(const RunRecord& run, std::vector<std::string>& filled) {
  const auto cluster = profiler::cluster_of_device(
      run.gpu,
      {run.gpus, run.gpus_per_node, run.fast_links, node_bandwidth(run.inter_node, run.gpus_per_node)});
  if (!cluster)
    refuse("hardware/gpu", fmt::format("\"{}\"", run.gpu.substr(0, 80)), "a device of the catalog");
  ClusterSpec c = *cluster;
  if (!c.device.name.starts_with(run.gpu)) filled.push_back("hardware.gpu = " + c.device.name);
  // "kernels/b200-simumax" names a node whose kernels were measured themselves.
  if (run.profile.rfind('/') != std::string::npos && run.profile.size() < 200)
    c.device.kernels = run.profile.substr(run.profile.rfind('/') + 1);
  return c;
}

// Which of the known frameworks the record's words mean.
std::string framework_of(const RunRecord& run) {
  const std::string& f = run.framework;
  const bool classic = run.precision == "fp16" && !has(run.options, "flash");
  if (has(f, "MaxText") || has(f, "JAX")) return "maxtext";
  if (has(f, "torchtitan")) return "torchtitan";
  if (has(f, "FSDP") || has(f, "foundry") || has(f, "Composer")) return "fsdp";
  if (has(f, "nanotron")) return "nanotron";
  if (has(f, "InternEvo") || has(f, "InternLM")) return "internevo";
  if (has(f, "Paddle")) return "paddle";
  // Its scripts set CUDA_LAUNCH_BLOCKING=1 (bigscience-workshop/bigscience,
  // train/tr11-176B-ml/chronicles-prequel.md).
  if (has(f, "BigScience")) return "megatron-deepspeed-blocking";
  if (has(f, "Alpa")) return "maxtext";
  const bool megatron = has(f, "Megatron") || has(f, "NeoX");
  for (const char* eager :
       {"DeepSpeed", "PyTorch", "Hugging", "transformers", "OLMo", "litgpt", "Lightning"}) {
    if (has(f, eager) && !megatron && run.precision != "fp16") return "fsdp";
  }
  if (has(f, "DeepSpeed") || has(f, "NeoX")) return "megatron-deepspeed";
  if (classic && (has(f, "Megatron") || has(f, "Aceso"))) return "megatron-lm";
  return has(f, "NeMo") || has(f, "Bridge") ? "nemo" : "megatron-core";
}

// torchtitan compiled the whole model but not the loss until 2025 (pytorch/torchtitan at 9dec370, train.py).
bool loss_is_eager(const RunRecord& run) {
  return has(run.source, "_202412_") || (run.compiled && !*run.compiled);
}

// fp32 copies of the logits that an eager loss has: the cast, its logarithmic softmax and the gradient. Over
// a vocabulary in shares the shifted logits and their exponentials stand beside
// (torch/distributed/tensor/parallel/ loss.py).
int64_t logit_copies_of_eager_loss(const RunRecord& run) { return run.tensor.value_or(1) > 1 ? 5 : 3; }

Execution execution_of(const RunRecord& run) {
  Execution e = models::load_framework(framework_of(run), "layout/framework");
  // DeepSpeed's bf16 optimizer keeps gradients in bf16 and their sum in fp32.
  if (has(run.sharding, "BF16_Optimizer")) e.gradient_bytes = 6;
  // Its recipes of 2024 took Apex's optimizer (NVIDIA/dgxc-benchmarking, nemotron4-340b-synth.yaml,
  // distributed_fused_adam), which beside bf16 weights keeps the lower 16 bits of the masters alone
  // (store_param_remainders in NVIDIA/NeMo, setup_optimization).
  if (e.framework == "nemo" && run.precision == "bf16" &&
      (has(run.source, "v24.") || has(run.notes, "First 24.07")))
    e.optimizer_bytes = 10;
  if (run.fused_loss) e.loss = *run.fused_loss ? LossKernel::fused : LossKernel::fp32;
  if (e.framework == "megatron-core" && has(run.options, "\"use-distributed-optimizer\"") &&
      !has(run.options, "cross-entropy-loss-fusion"))
    e.loss = LossKernel::fp32;
  if (has(run.options, "\"attention-backend\":\"unfused\"")) e.attention = AttentionKernel::unfused;
  // Megatron-LM drops a tenth of the hidden units unless told otherwise (megatron/training/arguments.py).
  if (e.framework == "megatron-core" && has(run.framework, "CI golden values")) e.dropout = true;
  if (has(run.options, "dropout\":0.0") || run.model.norm == NormKind::rms_norm) e.dropout = false;
  if (has(run.options, "hybridep") || has(run.options, "deepep")) e.deduplicates_dispatch = true;
  if (e.framework == "torchtitan" && loss_is_eager(run)) {
    e.loss = LossKernel::fp32;
    e.logit_copies = logit_copies_of_eager_loss(run);
  }
  // On Blackwell it takes cuDNN's attention, which its list of what to keep leaves out (pytorch/torchtitan at
  // 6fc499f, models/attention.py and models/llama3/infra/parallelize.py).
  if (e.framework == "torchtitan" && (has(run.gpu, "b200") || has(run.gpu, "b300")))
    e.keeps_core_output = false;
  // Its losses come from flash-attention (mosaicml/llm-foundry, modeling_mpt.py, fused_crossentropy).
  if (has(run.framework, "foundry")) e.loss = LossKernel::fused;
  if (run.compiled && *run.compiled) e.elementwise = ElementwiseKernels::compiled;
  return e;
}

std::string schedule_of(const RunRecord& run) {
  const std::string& s = run.schedule;
  if (run.chunks.value_or(1) > 1 && !has(s, "zb") && !has(s, "dual")) return "interleaved";
  if (has(s, "interleaved")) return "interleaved";
  if (has(s, "zb-1p") || has(s, "zb-h1")) return "zb-h1";
  if (has(s, "zb-2p") || has(s, "zb-h2")) return "zb-h2";
  if (has(s, "zb-v") || has(s, "zbv")) return "zb-v";
  if (has(s, "v-half")) return "v-half";
  if (has(s, "v-min")) return "v-min";
  if (has(s, "dualpipe")) return "dualpipe-v";
  if (has(s, "gpipe") || has(s, "afab")) return "gpipe";
  return "1f1b";
}

// "shard group 8", "over 4", "FSDP=128": ranks that states are shared out over; 0 if the words name none.
int64_t shard_of(const std::string& sharding) {
  static const std::regex number(R"((?:shard group |over |FSDP=)(\d{1,7}))");
  std::smatch found;
  return std::regex_search(sharding, found, number) ? std::stoll(found[1]) : 0;
}

struct Overlap {
  bool reduce = false, gather = false, tensor = false, transfer = false;
};

Overlap overlap_of(const RunRecord& run, const Execution& e) {
  if (has(run.notes, "no overlap") || has(run.sharding, "no overlap") || has(run.schedule, "(sync)"))
    return {};
  if (e.framework == "nemo") return {true, true, true, true};
  if (e.framework == "megatron-core") return {true, true, has(run.overlap, "TP"), true};
  if (e.framework == "torchtitan") return {true, true, run.async_tensor.value_or(false), true};
  if (e.framework == "fsdp" || e.framework == "maxtext") return {true, true, false, true};
  if (e.framework == "nanotron") return {true, false, has(run.options, "async"), true};
  if (e.framework == "internevo") return {true, false, false, true};
  return {false, false, false, true};
}

// A layer belongs to the stage in whose share of the products' weights it begins (huggingface/nanotron,
// build_model in models/base.py).
std::vector<int64_t> stages_by_cost(const ModelSpec& m, int64_t stages) {
  const double layer = double(m.hidden) * (4.0 * double(m.heads * m.head_dim) + 3.0 * double(m.ffn_hidden));
  const double share = (double(m.layers) * layer + double(m.vocab * m.hidden)) / double(stages);
  std::vector<int64_t> counts(size_t(stages), 0);
  for (int64_t l = 0, s = 0; l < m.layers; ++l) {
    ++counts[size_t(s)];
    if (double(l + 1) * layer > double(s + 1) * share) s = std::min(s + 1, stages - 1);
  }
  return counts.back() > 0 ? counts : even_stages(m.layers, stages);
}

// Layers of each virtual stage.
std::vector<int64_t> stages_of(const RunRecord& run, const Layout& l) {
  const int64_t stages = l.stages(), layers = run.model.layers;
  if (stages <= 1) return {layers};
  // By the source's operators: each boundary at the layer that is nearest to its share of all operators.
  if (int64_t(run.stages.size()) == stages) {
    int64_t all = 0, before = 0, placed = 0;
    for (const RunStage& s : run.stages) all += s.operators;
    std::vector<int64_t> counts;
    for (const RunStage& s : run.stages) {
      before += s.operators;
      const int64_t end = (2 * layers * before + all) / (2 * all);
      counts.push_back(end - placed);
      placed = end;
    }
    return counts;
  }
  if (l.execution.framework == "nanotron") return stages_by_cost(run.model, stages);
  // Embedding and head stand in for a layer each.
  const bool ends_count = run.ends_one_layer_less.value_or(false) || run.embedding_counts_as_layer;
  if (ends_count && (layers + 2) % stages == 0) {
    std::vector<int64_t> counts(size_t(stages), (layers + 2) / stages);
    --counts.front();
    --counts.back();
    return counts;
  }
  return even_stages(layers, stages);
}

Precision precision_of(const RunRecord& run) {
  if (has(run.precision, "fp8") || has(run.precision, "fp4")) return Precision::fp8;
  if (run.precision == "fp16") return Precision::fp16;
  if (run.precision == "fp32" || run.precision == "tf32") return Precision::fp32;
  return Precision::bf16;
}

// The layout as far as it was published.
Layout layout_of(const RunRecord& run, std::vector<std::string>& filled) {
  const auto published = [&](const std::optional<int64_t>& value, const char* field, int64_t otherwise) {
    if (!value) filled.push_back(fmt::format("layout.{} = {}", field, otherwise));
    return value.value_or(otherwise);
  };
  Layout l;
  const auto wider = [&](const RunStage& s) { return s.gpus != run.stages.front().gpus; };
  if (std::any_of(run.stages.begin(), run.stages.end(), wider))
    refuse("layout/stages", "stages of different numbers of GPUs", "one number for all of them");
  l.tensor = published(run.tensor, "tp", run.stages.empty() ? 1 : run.stages.front().gpus);
  l.pipeline = published(run.pipeline, "pp", 1);
  l.context = run.context.value_or(1);
  l.chunks = run.chunks.value_or(1);
  const int64_t fixed = l.tensor * l.pipeline * l.context;
  l.data = published(run.data, "dp", std::max<int64_t>(1, run.gpus / fixed));
  if (fixed * l.data > run.gpus)
    refuse("layout", fmt::format("{} ranks", fixed * l.data), fmt::format("the {} GPUs", run.gpus));
  l.expert = run.model.moe ? run.expert.value_or(1) : 1;
  const int64_t pool = l.tensor * l.context * l.data;
  // Megatron-LM splits experts as it splits all else where nothing else is said
  // (megatron/core/model_parallel_config.py, expert_tensor_parallel_size).
  const int64_t split = pool % (l.expert * l.tensor) == 0 ? l.tensor : 1;
  l.expert_tensor = run.model.moe ? run.expert_tensor.value_or(split) : l.tensor;
  if (l.expert_tensor == l.tensor) l.expert_tensor = 0;
  l.micro_batch = run.micro_batch.value_or(1);
  l.sequence_parallel = l.tensor > 1 && run.sequence_parallel.value_or(false);
  if (has(run.context_method, "a2a")) l.context_method = ContextMethod::all_to_all;
  l.precision = precision_of(run);
  l.zero = run.zero.value_or(0);
  const int64_t shard = shard_of(run.sharding);
  l.shard = l.zero == 0 ? 1 : shard > 0 ? std::gcd(shard, l.replicas()) : l.replicas();
  if (l.zero > 0 && l.shard == 1) l.zero = 0;
  l.execution = execution_of(run);
  const Overlap overlap = overlap_of(run, l.execution);
  l.overlap_gradient_reduce = overlap.reduce;
  l.overlap_parameter_gather = overlap.gather;
  l.overlap_tensor = overlap.tensor && l.sequence_parallel;
  l.overlap_transfer = overlap.transfer;
  l.schedule = l.pipeline > 1 ? schedule_of(run) : "1f1b";
  const ScheduleEntry& entry = find_schedule(l.schedule, "layout/schedule");
  l.chunks = l.pipeline > 1 ? std::clamp<int64_t>(l.chunks, entry.min_chunks, entry.max_chunks) : 1;
  return l;
}

// Where operators are chosen one by one (Aceso, EuroSys 2024) the attention core goes first. With most
// operators of a stage little more than its layers' inputs is left.
Recompute recompute_of_operators(const std::vector<RunStage>& stages) {
  const auto most = [](const RunStage& s) { return 2 * s.recomputed_operators > s.operators; };
  return std::any_of(stages.begin(), stages.end(), most) ? Recompute::full : Recompute::selective;
}

void set_recompute(const RunRecord& run, const std::string& recompute, Layout& l) {
  l.recomputed_layers.clear();
  l.recompute = Recompute::none;
  if (recompute == "per" && !run.stages.empty()) {
    l.recompute = recompute_of_operators(run.stages);
    return;
  }
  if (recompute == "full") {
    l.recompute = Recompute::full;
    if (run.recomputed_layers_per_stage) {
      for (const int64_t n : l.layers_per_stage)
        l.recomputed_layers.push_back(std::min(n, *run.recomputed_layers_per_stage));
    }
  } else if (recompute == "selective") {
    l.recompute = Recompute::selective;
  }
}

// The layouts that the published part leaves possible, the likelier first.
std::vector<Layout> candidates(const RunRecord& run, const Layout& published,
                               std::vector<std::string>& open) {
  std::vector<Layout> out;
  std::vector<int64_t> chunks{published.chunks}, micro_batches{published.micro_batch};
  const bool any_schedule =
      run.schedule.empty() || run.schedule == "none" || published.schedule == "interleaved";
  if (!run.chunks && published.pipeline > 1 && any_schedule) {
    open.emplace_back("vpp");
    chunks.clear();
    if (published.schedule != "interleaved") chunks.push_back(1);
    for (const int64_t c : {2, 3, 4, 5, 6, 7, 8, 10, 12}) {
      if (run.model.layers % (c * published.pipeline) == 0) chunks.push_back(c);
    }
    if (chunks.empty()) chunks.push_back(2);
  }
  if (!run.micro_batch) {
    open.emplace_back("micro_batch");
    micro_batches.clear();
    for (int64_t b = 1; b <= 64; b *= 2) {
      if (run.global_batch % (published.data * b) == 0) micro_batches.push_back(b);
    }
  }
  std::vector<std::string> recomputes{run.recompute.value_or("none")};
  if (!run.recompute) {
    open.emplace_back("recompute");
    recomputes = {"none", "selective", "full"};
  }
  // Optimizer state is shared out only where it has to be.
  std::vector<int64_t> zeros{published.zero};
  if (!run.zero && published.replicas() > 1) {
    open.emplace_back("zero_stage");
    zeros.push_back(1);
  }
  for (const int64_t z : zeros) {
    for (const int64_t c : chunks) {
      for (const int64_t b : micro_batches) {
        for (const std::string& r : recomputes) {
          Layout l = published;
          l.zero = z;
          if (z > 0 && published.zero == 0) l.shard = l.replicas();
          l.chunks = c;
          if (any_schedule && published.pipeline > 1) l.schedule = c > 1 ? "interleaved" : "1f1b";
          l.micro_batch = b;
          l.layers_per_stage = stages_of(run, l);
          set_recompute(run, r, l);
          if (std::find(out.begin(), out.end(), l) == out.end()) out.push_back(std::move(l));
        }
      }
    }
  }
  return out;
}

// Megatron-LM interleaves only where the micro-batches divide by the pipeline; others run in order.
void fix_schedule(const SearchProblem& problem, Layout& l) {
  const int64_t count = micro_batches(l, problem.workload);
  if (l.schedule == "interleaved" && count % l.pipeline != 0) {
    l.schedule = "1f1b";
    l.chunks = 1;
    l.layers_per_stage = even_stages(problem.model.layers, l.pipeline);
    if (!l.recomputed_layers.empty())
      l.recomputed_layers.assign(size_t(l.pipeline), l.recomputed_layers.front());
  }
}

// Where recompute was not published: as few layers of each stage as fit, as Megatron-LM's block method counts
// them (recompute_num_layers in megatron/core/transformer/transformer_config.py). Others choose tensors in
// place of layers, for about the same time in the same memory.
void recompute_no_more_than_needed(const SearchProblem& problem, Layout& layout) {
  const models::StagePieces pieces(problem.model, layout, problem.workload.sequence);
  const Schedule schedule = named_schedule(layout, micro_batches(layout, problem.workload));
  const auto with = [&](int64_t layers) {
    Layout some = layout;
    for (const int64_t n : layout.layers_per_stage) some.recomputed_layers.push_back(std::min(n, layers));
    return some;
  };
  const auto fits = [&](const Layout& some) {
    const auto footprints = models::stage_footprints(pieces, problem.model, some);
    return !check_memory(rank_memory(schedule, footprints), limits_of_ranks(problem, some));
  };
  const int64_t all = *std::max_element(layout.layers_per_stage.begin(), layout.layers_per_stage.end());
  int64_t low = 1, high = all;
  if (fits(with(0)) || !fits(layout)) return;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (fits(with(middle))) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  if (high < all) layout = with(high);
}

// Layers whose activations wait in the host's memory, on their way there and back beside compute: as many as
// published, or else as it takes where Megatron's FSDP runs beside Grace, whose recipes offload in place of
// recompute (NVIDIA-NeMo/Megatron-Bridge, scripts/performance, cpu_offloading_num_layers). It takes one stage
// (megatron/core/transformer/transformer_config.py), and two layers stay: one at work, one on its way.
int64_t offloaded_layers(const RunRecord& run, const Layout& l, int64_t excess_bytes, int64_t layer_bytes) {
  static const std::regex number(R"re(cpu_offloading_num_layers":\s*"?(\d{1,6}))re");
  if (l.pipeline > 1 || l.recompute != Recompute::none) return 0;
  const int64_t most = std::max<int64_t>(0, run.model.layers - 2);
  std::smatch found;
  if (std::regex_search(run.options, found, number)) return std::min<int64_t>(most, std::stoll(found[1]));
  const bool open = !run.recompute && l.zero == 3 && l.execution.framework == "nemo" &&
                    (run.gpu.starts_with("gb200") || run.gpu.starts_with("gb300"));
  const int64_t needed = (excess_bytes + layer_bytes - 1) / layer_bytes;
  return open && needed <= most ? std::max<int64_t>(0, needed) : 0;
}

// Takes them out of the evaluation's memory.
int64_t offload(const RunRecord& run, const SearchProblem& problem, const Estimate& e,
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

// ZB-1p and ZB-2p fill every stage with pending work up to the activations of one or two micro-batches per
// rank, counted in those of the larger of the first two stages (sail-sg/zero-bubble, zerobubble/runtime.py,
// zero_bubble_max_pending_backward). Behind an input gradient only the products' operands are pending.
void fill_pending_work(const RunRecord& run, const Estimate& e, int64_t micro_batches,
                       std::vector<RankMemory>& memory) {
  const int64_t per_rank = has(run.schedule, "zb-1p") ? 1 : has(run.schedule, "zb-2p") ? 2 : 0;
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

// Which rank's memory the source gives: the fullest unless it says otherwise.
std::pair<size_t, size_t> measured_ranks(const RunRecord& run, size_t ranks) {
  if (has(run.notes, "last rank") || has(run.framework, "CI golden values")) return {ranks - 1, ranks};
  // Only rank 0 writes the row of a benchmark (huggingface/nanotron, log_throughput in helpers.py).
  if (has(run.framework, "nanotron")) return {0, 1};
  return {0, ranks};
}

// Peak in the terms of whoever measured it.
double peak_gib(const RunRecord& run, const Execution& e, const DeviceSpec& device,
                const std::vector<RankMemory>& memory) {
  int64_t bytes = 0;
  const auto [first, end] = measured_ranks(run, memory.size());
  for (size_t r = first; r < end; ++r) bytes = std::max(bytes, memory[r].peak_bytes);
  double gib = double(bytes) / double(int64_t{1} << 30);
  const bool whole_device = has(run.notes, "nvidia-smi") || has(run.notes, "how measured is not stated") ||
                            run.family == "flagperf";
  // torchtitan prints what its allocator has reserved (torchtitan/components/metrics.py).
  const bool reserved = whole_device || has(run.notes, "reserved memory") || has(run.framework, "torchtitan");
  const double cached = reserved ? gib * e.allocator_cache : 0.0;
  if (reserved) gib *= 1.0 + e.allocator_slack;
  if (whole_device) gib += e.context_gib;
  // The cache is given back where the device is full.
  return std::max(gib, std::min(gib + cached, double(device.memory_bytes) / double(int64_t{1} << 30)));
}

}  // namespace

RunPrediction predict_run(const RunRecord& run, const Calibration& calibration) {
  SearchProblem problem;
  std::vector<std::string> filled;
  problem.model = run.model;
  validate_model(problem.model, "model");
  problem.cluster = cluster_of(run, filled);
  problem.workload = {run.global_batch, run.sequence};
  problem.ranks = run.gpus;
  RunPrediction best;
  best.filled = run.filled;
  best.filled.insert(best.filled.end(), filled.begin(), filled.end());
  std::vector<std::string> open;
  const Layout published = layout_of(run, best.filled);
  // Fewer keys and values than tensor ranks are held several times.
  if (published.tensor > problem.model.kv_heads && published.tensor % problem.model.kv_heads == 0 &&
      problem.model.heads % published.tensor == 0)
    problem.model.kv_heads = published.tensor;
  // A batch that its ranks do not divide: the nearest that they do, and its time in proportion.
  double batches = 1.0;
  if (const int64_t unit = published.data * published.micro_batch;
      run.micro_batch && run.global_batch % unit != 0) {
    problem.workload.global_batch = std::max<int64_t>(1, (run.global_batch + unit / 2) / unit) * unit;
    batches = double(run.global_batch) / double(problem.workload.global_batch);
    best.filled.push_back(fmt::format("layout.global_batch = {}", problem.workload.global_batch));
  }
  problem.precision = published.precision;
  std::unique_ptr<CostSource> cost = make_kernel_cost(problem.cluster, published.execution, calibration);
  if (!cost) cost = make_roofline_cost(problem.cluster);
  problem.cost = cost.get();
  problem.execution = published.execution;
  problem.memory_limit_bytes = tensor_bytes(problem.cluster.device, published.execution);
  std::string reason;
  bool any = false;
  std::optional<Candidate> chosen;
  int64_t in_host = 0;  // layers
  for (Layout layout : candidates(run, published, open)) {
    if (auto rejection = check_layout(problem.model, layout, problem.workload)) {
      reason = rejection->reason;
      continue;
    }
    fix_schedule(problem, layout);
    if (!run.recompute && layout.recompute == Recompute::full) recompute_no_more_than_needed(problem, layout);
    Candidate candidate{estimate(problem, layout), {}};
    candidate.evaluation = evaluate_regardless(problem, candidate.estimate);
    const int64_t offloaded = offload(run, problem, candidate.estimate, candidate.evaluation);
    const Evaluation& evaluation = candidate.evaluation;
    const bool fits = !evaluation.rejection;
    // The fastest that fits; where none does, the leanest.
    const auto peak = double(evaluation.peak_bytes);
    if (any && best.fits && layout.zero > best.layout.zero) continue;
    const bool better = !any || (fits && (!best.fits || evaluation.step_time_s < best.step_s)) ||
                        (!fits && !best.fits && peak < best.peak_gib);
    if (!better) continue;
    any = true;
    best.layout = layout;
    best.step_s = evaluation.step_time_s;
    best.peak_gib = peak;
    best.fits = fits;
    best.memory = evaluation.memory;
    in_host = offloaded;
    chosen = std::move(candidate);
  }
  if (!any) refuse("layout", reason, "a layout that divides the model and the batch");
  best.breakdown = breakdown(problem, *chosen);
  fill_pending_work(run, chosen->estimate, micro_batches(best.layout, problem.workload), best.memory);
  for (const std::string& field : open) {
    best.filled.push_back(fmt::format("layout.{} = {}", field,
                                      field == "vpp"           ? std::to_string(best.layout.chunks)
                                      : field == "micro_batch" ? std::to_string(best.layout.micro_batch)
                                      : field == "zero_stage"  ? std::to_string(best.layout.zero)
                                                               : enum_name(best.layout.recompute)));
  }
  if (in_host > 0)
    best.filled.push_back(fmt::format("activations of {} layers in the host's memory", in_host));
  best.step_s *= batches;
  best.peak_gib = peak_gib(run, best.layout.execution, problem.cluster.device, best.memory);
  return best;
}

}  // namespace mpt::planner
