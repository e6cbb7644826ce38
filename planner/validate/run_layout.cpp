// SPDX-License-Identifier: Apache-2.0
#include "planner/validate/run_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numeric>
#include <regex>

#include "core/error.h"
#include "core/recompute_modules.h"
#include "core/schedule_catalog.h"
#include "models/framework.h"

namespace mpt::planner {
namespace {

[[noreturn]] void refuse(const std::string& field, const std::string& found, const std::string& allowed) {
  throw UserError(Problem{field, found, allowed, ""});
}

bool mentions_one(const std::string& text, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](const char* part) { return mentions(text, part); });
}

// Which of the known frameworks the record's words mean.
std::string framework_of(const RunRecord& run) {
  const std::string& f = run.framework;
  const bool classic = run.precision == "fp16" && !mentions(run.options, "flash");
  if (mentions(f, "MaxText") || mentions(f, "JAX")) return "maxtext";
  if (mentions(f, "torchtitan") || mentions(f, "FSDP2")) return "torchtitan";
  // Its examples wrap models of huggingface/transformers (dlrover, atorch/examples/llama2/fsdp_llama2.py), as
  // those of ColossalAI do (examples/language/llama2/benchmark.py).
  if (mentions_one(f, {"ATorch", "atorch", "DLRover"}) &&
      (mentions(f, "FSDP") || mentions(run.sharding, "FSDP")))
    return "atorch-fsdp";
  if (mentions_one(f,
                   {"Hugging", "transformers", "accelerate", "llama-recipes", "LLaMA-Factory", "Colossal"}))
    return "transformers";
  if (mentions(f, "FSDP") || mentions(f, "foundry") || mentions(f, "Composer")) return "fsdp";
  if (mentions(f, "nanotron")) return "nanotron";
  if (mentions(f, "InternEvo") || mentions(f, "InternLM")) return "internevo";
  if (mentions(f, "Paddle")) return "paddle";
  if (mentions(f, "Aleph Alpha")) return "aleph-alpha-scaling";
  // Its scripts set CUDA_LAUNCH_BLOCKING=1 (bigscience-workshop/bigscience,
  // train/tr11-176B-ml/chronicles-prequel.md).
  if (mentions(f, "BigScience")) return "megatron-deepspeed-blocking";
  if (mentions(f, "Alpa")) return "maxtext";
  const bool megatron = mentions(f, "Megatron") || mentions(f, "NeoX");
  const bool eager = mentions_one(f, {"DeepSpeed", "PyTorch", "OLMo", "litgpt", "Lightning"});
  if (eager && !megatron && run.precision != "fp16") return "fsdp";
  if (mentions(f, "DeepSpeed") || mentions(f, "NeoX")) return "megatron-deepspeed";
  if (classic && (mentions(f, "Megatron") || mentions(f, "Aceso"))) return "megatron-lm";
  return mentions(f, "NeMo") || mentions(f, "Bridge") ? "nemo" : "megatron-core";
}

// torchtitan compiled the whole model but not the loss until 2025 (pytorch/torchtitan at 9dec370, train.py).
bool loss_is_eager(const RunRecord& run) {
  return mentions(run.source, "_202412_") || (run.compiled && !*run.compiled);
}

// fp32 copies of the logits that an eager loss has: the cast, its logarithmic softmax and the gradient. Over
// a vocabulary in shares the shifted logits and their exponentials stand beside
// (torch/distributed/tensor/parallel/loss.py).
int64_t logit_copies_of_eager_loss(const RunRecord& run) { return run.tensor.value_or(1) > 1 ? 5 : 3; }

Execution execution_of(const RunRecord& run) {
  Execution e = models::load_framework(framework_of(run), "layout/framework");
  // DeepSpeed's bf16 optimizer keeps gradients in bf16 and their sum in fp32.
  if (mentions(run.sharding, "BF16_Optimizer")) e.gradient_bytes = 6;
  // Its recipes of 2024 took Apex's optimizer (NVIDIA/dgxc-benchmarking, nemotron4-340b-synth.yaml,
  // distributed_fused_adam), which beside bf16 weights keeps the lower 16 bits of the masters alone
  // (store_param_remainders in NVIDIA/NeMo, setup_optimization).
  if (e.framework == "nemo" && run.precision == "bf16" &&
      (mentions(run.source, "v24.") || mentions(run.notes, "First 24.07")))
    e.optimizer_bytes = 10;
  // Sums beside weight gradients came to Megatron-LM in 2022, with sequence parallelism (arXiv:2205.05198;
  // linear_with_grad_accumulation_and_async_allreduce in its tensor_parallel/layers.py).
  const bool of_megatron = mentions(run.framework, "Megatron") || e.framework == "internevo";
  if (mentions(run.source, "2205.05198")) e.sums_beside_weight_gradient = true;
  if (!of_megatron || mentions(run.source, "2201.11990") || mentions(run.notes, "all communication exposed"))
    e.sums_beside_weight_gradient = false;
  // In fp16 its fork of Megatron-LM keeps gradients as they come, unless told to add them up in fp32
  // (microsoft/SuperScaler, runtime/megatron/arguments.py; Dazz993/Mist gives the command).
  if (mentions(run.framework, "Aceso")) e.gradient_bytes = 2;
  if (run.fused_loss) e.loss = *run.fused_loss ? LossKernel::fused : LossKernel::fp32;
  if (e.framework == "megatron-core" && mentions(run.options, "\"use-distributed-optimizer\"") &&
      !mentions(run.options, "cross-entropy-loss-fusion"))
    e.loss = LossKernel::fp32;
  // Until July 2026 its gradient took the logits' own place (NVIDIA/TransformerEngine before 01bbe3eea,
  // transformer_engine/pytorch/triton/cross_entropy.py).
  if (mentions(run.options, "\"cross-entropy-fusion-impl\":\"te\"")) e.loss = LossKernel::fused;
  // DeepSpeed without Megatron runs models of other libraries: kernels of PyTorch, and for those with RMS
  // norms, which came after it, flash attention.
  if (e.framework == "megatron-deepspeed" && !mentions(run.framework, "Megatron") &&
      !mentions(run.framework, "NeoX") && run.model.norm == NormKind::rms_norm) {
    e.attention = AttentionKernel::flash2;
    e.elementwise = ElementwiseKernels::eager;
    e.rms_norm_bytes = 4;
    // The peak of their tensors was read: the share's gradients in fp32 come in the step, when activations
    // are gone (step in deepspeed/runtime/zero/stage_1_and_2.py).
    e.optimizer_bytes = 12;
  }
  // ATorch splits the modules of such a model over tensor ranks one by one (get_llama_tpinfo in dlrover,
  // atorch/examples/llama2/ds_3d_llama2.py; ColumnParallelLinear in atorch/modules/distributed_modules).
  if (mentions_one(run.framework, {"ATorch", "atorch"})) e.sums_each_projection = true;
  // FlashAttention-2 came to it in August 2023 (PaddlePaddle/Paddle, pull requests 55758 and 56015).
  if (mentions(run.framework, "PaddlePaddle 2.5.1")) e.attention = AttentionKernel::flash1;
  // cuDNN's attention for Blackwell has its speed since 9.17 (NVIDIA/cudnn-frontend, README of its benchmark
  // at 0b1577c and b372d39), which NeMo's containers have since 2026.
  const bool blackwell = mentions_one(run.gpu, {"b200", "b300"});
  if (e.attention == AttentionKernel::cudnn && blackwell && !mentions(run.source, "container 26"))
    e.attention = AttentionKernel::flash;
  // The helper of its recipes turns the first on (NVIDIA-NeMo/Megatron-Bridge, perf_recipes/qwen/common.py).
  e.fp8_attention = mentions_one(run.options, {"fp8_dot_product_attention\":true", "full_iteration_mxfp8"});
  e.fp8_head = mentions(run.options, "fp8_output_proj\":true");
  if (mentions(run.options, "\"attention-backend\":\"unfused\"")) e.attention = AttentionKernel::unfused;
  if (mentions(run.options, "\"attention_kernel\":\"torch\"")) e.attention = AttentionKernel::plain;
  if (mentions(run.options, "\"attention_kernel\":\"flash_attentionv1"))
    e.attention = AttentionKernel::flash1;
  if (mentions(run.options, "\"rmsnorm_kernel\":true")) e.rms_norm_bytes = 0;
  // Megatron-LM drops a tenth of the hidden units unless told otherwise (megatron/training/arguments.py).
  if (e.framework == "megatron-core" && mentions(run.framework, "CI golden values")) e.dropout = true;
  // Models with RMS norms are trained without; Aleph Alpha's example of one drops a tenth everywhere
  // (Aleph-Alpha/scaling, examples/transformer_example/config.yml).
  const bool drops = e.framework == "aleph-alpha-scaling" || run.model.norm != NormKind::rms_norm;
  if (mentions(run.options, "dropout\":0.0") || !drops) e.dropout = false;
  if (mentions(run.options, "deepep") || mentions(run.overlap, "DeepEP")) e.deduplicates_dispatch = true;
  // Forks and papers before Transformer Engine have Megatron-LM's own layers, which sum biases' gradients
  // apart (megatron/core/tensor_parallel/layers.py).
  if (e.framework == "megatron-core" && !mentions(run.framework, "CI golden values"))
    e.fuses_bias_gradients = false;
  // Its dispatch pads for experts, too (megatron/core/transformer/moe/token_dispatcher.py, _HybridEPManager).
  if (mentions(run.options, "hybridep") || mentions(run.overlap, "HybridEP")) models::send_tokens_once(e);
  // With them came kernels that have a whole expert (NVTE_CUTEDSL_FUSED_GROUPED_MLP beside
  // use_transformer_engine_op_fuser in the same recipes).
  if (mentions(run.options, "full_iteration")) e.graphs = e.fuses_experts = true;
  if (e.framework == "torchtitan" && loss_is_eager(run)) {
    e.loss = LossKernel::fp32;
    e.logit_copies = logit_copies_of_eager_loss(run);
  }
  // Until 2025 it shifted the logits by a position into a copy (huggingface/transformers, loss/loss_utils.py,
  // and before that every model's own forward).
  if (e.framework == "transformers" && mentions_one(run.source, {"2022-", "2023-", "2024-"}))
    e.logit_copies = 4;
  // Its benchmarks make models in 16 bits, of which PyTorch's Adam keeps two moments as wide
  // (NVIDIA-NeMo/Automodel, examples/benchmark/configs: torch.optim.Adam, no master weights).
  if (mentions(run.framework, "AutoModel")) {
    e.weight_bytes = 2;
    e.optimizer_bytes = 4;
  }
  // On Blackwell it takes cuDNN's attention, which its list of what to keep leaves out (pytorch/torchtitan at
  // 6fc499f, models/attention.py and models/llama3/infra/parallelize.py).
  if (e.framework == "torchtitan" && (mentions(run.gpu, "b200") || mentions(run.gpu, "b300")))
    e.keeps_core_output = false;
  if (run.vocabulary_is_padded) e.vocabulary_multiple = 1;
  // Its losses come from flash-attention (mosaicml/llm-foundry, modeling_mpt.py, fused_crossentropy).
  if (mentions(run.framework, "foundry")) e.loss = LossKernel::fused;
  // Norms, rotary positions and the loss of flash-attention, the gated activation of xFormers
  // (jzhang38/TinyLlama, lit_gpt/model.py and pretrain/tinyllama.py).
  if (mentions(run.notes, "Fused kernels of flash-attention")) {
    e.elementwise = ElementwiseKernels::fused;
    e.loss = LossKernel::fused;
  }
  if (run.compiled.value_or(false)) e.elementwise = ElementwiseKernels::compiled;
  if (!run.compiled.value_or(true) && e.elementwise == ElementwiseKernels::compiled)
    e.elementwise = ElementwiseKernels::eager;
  return e;
}

std::string schedule_of(const RunRecord& run) {
  const std::string& s = run.schedule;
  if (run.chunks.value_or(1) > 1 && !mentions(s, "zb") && !mentions(s, "dual")) return "interleaved";
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
  return std::regex_search(sharding, found, number) ? std::stoll(found[1]) : 0;
}

struct Overlap {
  bool reduce = false, gather = false, tensor = false, transfer = false, exchange = false;
};

Overlap overlap_of(const RunRecord& run, const Execution& e) {
  if (mentions(run.notes, "no overlap") || mentions(run.sharding, "no overlap") ||
      mentions(run.schedule, "(sync)"))
    return {};
  // Its collectives are in the stream of its kernels, as XLA had them then (OSDI 2022).
  if (mentions(run.framework, "Alpa")) return {};
  // Flags of Megatron-LM and Megatron-Bridge, and the latter's helper that sets them
  // (src/megatron/bridge/perf_recipes/qwen/common.py).
  const bool exchange = mentions_one(
      run.options, {"overlap-moe-expert-parallel-comm\":true", "overlap_moe_expert_parallel_comm=True",
                    "moe_a2a_overlap\":true", "moe_a2a_overlap\":\"True", "full_iteration_mxfp8"});
  if (e.framework == "nemo") return {true, true, true, true, exchange};
  if (e.framework == "megatron-core") return {true, true, mentions(run.overlap, "TP"), true, exchange};
  if (e.framework == "torchtitan") return {true, true, run.async_tensor.value_or(false), true};
  for (const char* overlapping : {"fsdp", "atorch-fsdp", "transformers", "maxtext"}) {
    if (e.framework == overlapping) return {true, true, false, true};
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

// Embedding and head stand in for a layer each where the source says so, and where the layers alone do not
// divide: Megatron-LM then takes no other split without being told its stages one by one
// (account_for_embedding_in_pipeline_split in megatron/core/transformer/transformer_config.py), and
// torchtitan always splits so (generate_split_points in torchtitan/parallelisms/pipelining_utils.py).
bool ends_count_as_layers(const RunRecord& run, const std::string& framework, int64_t stages) {
  const int64_t layers = run.model.layers;
  const bool splits_so = framework == "megatron-core" || framework == "nemo" || framework == "torchtitan";
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
  if (ends_count_as_layers(run, l.execution.framework, stages)) {
    std::vector<int64_t> counts(size_t(stages), (layers + 2) / stages);
    --counts.front();
    --counts.back();
    return counts;
  }
  return even_stages(layers, stages);
}

Precision precision_of(const RunRecord& run) {
  if (mentions(run.precision, "mxfp8") || mentions(run.id, "fp8-mx")) return Precision::mxfp8;
  if (mentions(run.precision, "fp8") || mentions(run.precision, "fp4")) return Precision::fp8;
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
  l.sequence_parallel = l.tensor > 1 && run.sequence_parallel.value_or(false);
  if (mentions(run.context_method, "a2a")) l.context_method = ContextMethod::all_to_all;
  l.precision = precision_of(run);
  l.zero = run.zero.value_or(0);
  const int64_t shard = shard_of(run.sharding);
  l.shard = l.zero == 0 ? 1 : shard > 0 ? std::gcd(shard, l.replicas()) : l.replicas();
  if (l.zero > 0 && l.shard == 1) l.zero = 0;
  l.execution = execution_of(run);
  const std::optional<int64_t> micro_batch = micro_batch_of(run, l);
  l.micro_batch = micro_batch.value_or(1);
  if (micro_batch != run.micro_batch) filled.push_back(fmt::format("layout.micro_batch = {}", l.micro_batch));
  const Overlap overlap = overlap_of(run, l.execution);
  l.overlap_gradient_reduce = overlap.reduce;
  l.overlap_parameter_gather = overlap.gather;
  l.overlap_tensor = overlap.tensor && l.sequence_parallel;
  l.overlap_transfer = overlap.transfer;
  l.overlap_exchange = l.expert > 1 && overlap.exchange;
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
    if (!run.recompute_modules.empty()) set_recompute_modules(run.recompute_modules, l.execution);
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
