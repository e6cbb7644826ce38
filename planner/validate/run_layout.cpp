// SPDX-License-Identifier: Apache-2.0
#include "planner/validate/run_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <regex>

#include "base/error.h"
#include "core/recompute_modules.h"
#include "core/schedule_catalog.h"
#include "planner/validate/run_execution.h"

namespace mpt::planner {
namespace {

[[noreturn]] void refuse(const std::string& field, const std::string& found, const std::string& allowed) {
  throw UserError(Problem{field, found, allowed, ""});
}

std::string schedule_of(const RunRecord& run) {
  const std::string& s = run.schedule;
  if (run.chunks.value_or(1) > 1 && !mentions_one(s, {"zb", "dual", "v-half", "v-min"})) return "interleaved";
  if (mentions(s, "interleaved")) return "interleaved";
  if (mentions(s, "zb-1p") || mentions(s, "zb-h1")) return "zb-h1";
  if (mentions(s, "zb-2p") || mentions(s, "zb-h2")) return "zb-h2";
  if (mentions(s, "zb-v") || mentions(s, "zbv")) return "zb-v";
  if (mentions(s, "v-half")) return "v-half";
  if (mentions(s, "v-min")) return "v-min";
  if (mentions(s, "dualpipe")) return "dualpipe-v";
  if (mentions(s, "gpipe") || mentions(s, "afab")) return "gpipe";
  return "1f1b";
}

// "shard group 8", "over 4", "FSDP=128": ranks that states are shared out over; 0 if the words name none.
int64_t shard_of(const std::string& sharding) {
  static const std::regex number(R"((?:shard group |over |FSDP=)(\d{1,7}))");
  std::smatch found;
  return finds(sharding, found, number) ? std::stoll(found[1]) : 0;
}

struct Overlap {
  bool reduce = false, gather = false, tensor = false, transfer = false, exchange = false;
};

Overlap overlap_of(const RunRecord& run, const Execution& e) {
  if (mentions(run.notes, "no overlap") || mentions(run.sharding, "no overlap") ||
      mentions(run.schedule, "(sync)") || run.overlap == "none")
    return {};
  // Its collectives are in the stream of its kernels, as XLA had them then (OSDI 2022).
  if (mentions(run.framework, "Alpa")) return {};
  // Flags of Megatron-LM and Megatron-Bridge, and the latter's helper that sets them
  // (src/megatron/bridge/perf_recipes/qwen/common.py).
  // DualPipe was made for it (arXiv:2412.19437, section 3.2.1).
  static const std::regex beside(
      R"(all-to-all overlapped|ual[Pp]ipe|[Ee]xpert (communication )?overlap(?! (as|flag)))");
  const bool exchange =
      says(run.overlap + run.schedule + " " + run.notes, beside) ||
      mentions_one(run.options,
                   {"overlap-moe-expert-parallel-comm\":true", "overlap_moe_expert_parallel_comm=True",
                    "moe_a2a_overlap\":true", "moe_a2a_overlap\":\"True", "full_iteration_mxfp8"});
  if (e.framework == "megatron-bridge") return {true, true, true, true, exchange};
  if (e.framework == "megatron-core") return {true, true, mentions(run.overlap, "TP"), true, exchange};
  if (e.framework == "torchtitan") return {true, true, run.async_tensor.value_or(false), true};
  for (const char* overlapping : {"pytorch", "atorch-fsdp", "transformers-fsdp", "maxtext"}) {
    if (e.framework == overlapping) return {true, true, false, true, exchange};
  }
  if (e.framework == "nanotron") return {true, false, mentions(run.options, "async"), true};
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

// Embedding, final norm and head are items as layers are, and the first stages take one more of what is left
// over (Aleph-Alpha/scaling, pipe_partition_uniform in core/nn/parallel_module/pipeline_partitioning.py and
// get_transformer_layer_specs in transformer/model/model.py).
std::vector<int64_t> stages_by_items(int64_t layers, int64_t stages) {
  std::vector<int64_t> counts;
  for (int64_t s = 0; s < stages; ++s)
    counts.push_back((layers + 3) / stages + (s < (layers + 3) % stages ? 1 : 0));
  counts.front() -= 1;
  counts.back() -= 2;
  return counts.front() > 0 && counts.back() > 0 ? counts : even_stages(layers, stages);
}

// Embedding and head stand in for a layer each where the source says so, and where the layers alone do not
// divide: Megatron-LM then takes no other split without being told its stages one by one
// (account_for_embedding_in_pipeline_split in megatron/core/transformer/transformer_config.py), and
// torchtitan always splits so (generate_split_points in torchtitan/parallelisms/pipelining_utils.py).
bool ends_count_as_layers(const RunRecord& run, const std::string& framework, int64_t stages) {
  const int64_t layers = run.model.layers;
  const bool splits_so =
      framework == "megatron-core" || framework == "megatron-bridge" || framework == "torchtitan";
  const bool named = run.ends_one_layer_less.value_or(false) || run.embedding_counts_as_layer;
  return (named || (splits_so && layers % stages != 0)) && (layers + 2) % stages == 0;
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
  if (int64_t(run.layers_per_stage.size()) == stages) return run.layers_per_stage;
  if (l.execution.framework == "nanotron") return stages_by_cost(run.model, stages);
  if (l.execution.framework == "aleph-alpha-scaling") return stages_by_items(layers, stages);
  if (ends_count_as_layers(run, l.execution.framework, stages)) {
    std::vector<int64_t> counts(size_t(stages), (layers + 2) / stages);
    --counts.front();
    --counts.back();
    return counts;
  }
  return even_stages(layers, stages);
}

Precision precision_of(const RunRecord& run) {
  if (mentions(run.precision, "fp4")) return Precision::nvfp4;
  if (mentions(run.precision, "mxfp8") || mentions(run.id, "fp8-mx")) return Precision::mxfp8;
  if (mentions(run.precision, "fp8")) return Precision::fp8;
  if (run.precision == "fp16") return Precision::fp16;
  if (run.precision == "fp32" || run.precision == "tf32") return Precision::fp32;
  return Precision::bf16;
}

// Sequences per micro-batch. torchtitan cuts a rank's batch into as many micro-batches as the pipeline has
// ranks unless told otherwise (build_pipeline_schedule in torchtitan/parallelisms/pipelining_utils.py), and
// its sources name the batch.
std::optional<int64_t> micro_batch_of(const RunRecord& run, const Layout& l) {
  const int64_t batch = run.global_batch / l.data;
  const bool cuts = l.execution.framework == "torchtitan" && l.pipeline > 1 && batch % l.pipeline == 0;
  return cuts && run.micro_batch.value_or(batch) == batch ? batch / l.pipeline : run.micro_batch;
}

}  // namespace

namespace {

void refuse_other_stages(const RunRecord& run, const Layout& l) {
  if (int64_t(run.stages.size()) != l.stages())
    refuse("layout/stages", fmt::format("{} stages", run.stages.size()),
           fmt::format("the pipeline's {}", l.stages()));
  int64_t gpus = 0;
  for (const RunStage& s : run.stages) gpus += s.tensor * s.data;
  if (gpus > run.gpus * l.chunks)
    refuse("layout/stages", fmt::format("{} ranks", gpus), fmt::format("the {} GPUs", run.gpus));
}

}  // namespace

Layout published_layout(const RunRecord& run, std::vector<std::string>& filled) {
  const auto published = [&](const std::optional<int64_t>& value, const char* field, int64_t otherwise) {
    if (!value) filled.push_back(fmt::format("layout.{} = {}", field, otherwise));
    return value.value_or(otherwise);
  };
  Layout l;
  // Of stages that differ in width, the narrowest (run_stages.h).
  const auto of_stages = [&](int64_t RunStage::*degree) -> std::optional<int64_t> {
    std::optional<int64_t> least;
    for (const RunStage& s : run.stages) least = std::min(least.value_or(s.*degree), s.*degree);
    return least;
  };
  l.tensor = published(run.tensor ? run.tensor : of_stages(&RunStage::tensor), "tp", 1);
  l.pipeline = published(run.pipeline, "pp", 1);
  l.context = run.context.value_or(1);
  l.chunks = run.chunks.value_or(1);
  const int64_t fixed = l.tensor * l.pipeline * l.context;
  l.data = published(run.data ? run.data : of_stages(&RunStage::data), "dp",
                     std::max<int64_t>(1, run.gpus / fixed));
  if (!run.stages.empty()) refuse_other_stages(run, l);
  if (fixed * l.data > run.gpus)
    refuse("layout", fmt::format("{} ranks", fixed * l.data), fmt::format("the {} GPUs", run.gpus));
  l.expert = run.model.moe ? run.expert.value_or(1) : 1;
  const int64_t pool = l.tensor * l.context * l.data;
  // Megatron-LM splits experts as it splits all else where nothing else is said
  // (megatron/core/model_parallel_config.py, expert_tensor_parallel_size).
  const int64_t split = pool % (l.expert * l.tensor) == 0 ? l.tensor : 1;
  l.expert_tensor = run.model.moe ? run.expert_tensor.value_or(split) : l.tensor;
  if (l.expert_tensor == l.tensor) l.expert_tensor = 0;
  if (mentions(run.context_method, "a2a")) l.context_method = ContextMethod::all_to_all;
  l.precision = precision_of(run);
  l.zero = run.zero.value_or(0);
  const int64_t shard = shard_of(run.sharding);
  l.shard = l.zero == 0 ? 1 : shard > 0 ? std::gcd(shard, l.replicas()) : l.replicas();
  if (l.zero > 0 && l.shard == 1) l.zero = 0;
  l.execution = execution_of(run);
  // It takes less memory and no more time; Megatron-LM has had it since 2022.
  const bool has_sequence_parallel =
      l.execution.framework == "megatron-core" || l.execution.framework == "megatron-bridge";
  l.sequence_parallel = l.tensor > 1 && run.sequence_parallel.value_or(has_sequence_parallel);
  if (l.sequence_parallel && !run.sequence_parallel) filled.emplace_back("layout.sequence_parallel = true");
  const std::optional<int64_t> micro_batch = micro_batch_of(run, l);
  l.micro_batch = micro_batch.value_or(1);
  if (micro_batch != run.micro_batch) filled.push_back(fmt::format("layout.micro_batch = {}", l.micro_batch));
  const Overlap overlap = overlap_of(run, l.execution);
  l.overlap_gradient_reduce = run.overlap_gradient_reduce.value_or(overlap.reduce);
  l.overlap_parameter_gather = run.overlap_parameter_gather.value_or(overlap.gather);
  l.overlap_tensor = l.sequence_parallel && run.overlap_tensor.value_or(overlap.tensor);
  l.overlap_transfer = run.overlap_transfer.value_or(overlap.transfer);
  l.overlap_exchange = l.expert > 1 && run.overlap_exchange.value_or(overlap.exchange);
  l.schedule = l.pipeline > 1 ? schedule_of(run) : "1f1b";
  const ScheduleEntry& entry = find_schedule(l.schedule, "layout/schedule");
  l.chunks = l.pipeline > 1 ? std::clamp<int64_t>(l.chunks, entry.min_chunks, entry.max_chunks) : 1;
  return l;
}

namespace {

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
  if (recompute == "full" || run.recomputes_some_layers) {
    l.recompute = Recompute::full;
    if (run.recomputed_layers_per_stage) {
      for (const int64_t n : l.layers_per_stage)
        l.recomputed_layers.push_back(std::min(n, *run.recomputed_layers_per_stage));
    }
  } else if (recompute == "selective") {
    l.recompute = Recompute::selective;
    if (!run.recompute_modules.empty()) set_recompute_modules(run.recompute_modules, l.selective);
  }
}

}  // namespace

std::vector<Layout> possible_layouts(const RunRecord& run, const Layout& published,
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
      const int64_t stages = c * published.pipeline;
      if (run.model.layers % stages == 0 || ends_count_as_layers(run, published.execution.framework, stages))
        chunks.push_back(c);
    }
    if (chunks.empty()) chunks.push_back(2);
  }
  if (!micro_batch_of(run, published)) {
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

}  // namespace mpt::planner
