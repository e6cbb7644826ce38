// SPDX-License-Identifier: Apache-2.0
#include "planner/validate/run_execution.h"

#include <algorithm>
#include <optional>
#include <regex>

#include "frameworks/framework.h"
#include "planner/validate/framework_values.h"

namespace mpt::planner {
namespace {

// The generation of FlashAttention that options or notes name, 1 to 4; 0 where they name it without; none
// where they do not or say "no flash attention".
std::optional<int> named_flash(const std::string& text) {
  static const std::regex generation(R"(([Ff]lash[ _-]?[Aa]tt(n|ention)[ _-]?|\bFA-?)[v ]?([1-4])\b)"),
      flash(R"([Ff]lash[ -]?[Aa]ttention)");
  std::smatch found;
  if (finds(text, found, generation)) return std::stoi(found[3]);
  return says(text, flash) ? std::optional(0) : std::nullopt;
}

// Which of the known frameworks the record's words mean.
std::string framework_of(const RunRecord& run) {
  const std::string& f = run.framework;
  const bool classic = run.precision == "fp16" && !mentions(run.options, "flash") && !named_flash(run.notes);
  if (mentions(f, "MaxText") || mentions(f, "JAX")) return "maxtext";
  const bool of_transformers = mentions_one(
      f, {"Hugging", "ransformers", "HF ", "accelerate", "llama-recipes", "LLaMA-Factory", "Colossal"});
  if (mentions(f, "torchtitan") || (mentions(f, "FSDP2") && !of_transformers)) return "torchtitan";
  // Its examples wrap models of huggingface/transformers (dlrover, atorch/examples/llama2/fsdp_llama2.py), as
  // those of ColossalAI do (examples/language/llama2/benchmark.py).
  if (mentions_one(f, {"ATorch", "atorch", "DLRover"}) &&
      (mentions(f, "FSDP") || mentions(run.sharding, "FSDP")))
    return "atorch-fsdp";
  if (of_transformers) return "transformers-fsdp";
  if (mentions(f, "FSDP") || mentions(f, "foundry") || mentions(f, "Composer")) return "pytorch";
  if (mentions(f, "nanotron")) return "nanotron";
  if (mentions(f, "InternEvo") || mentions(f, "InternLM")) return "internevo";
  if (mentions(f, "Paddle")) return "paddle";
  if (mentions(f, "Aleph Alpha")) return "aleph-alpha-scaling";
  // The scripts for BLOOM set CUDA_LAUNCH_BLOCKING=1 (bigscience-workshop/bigscience,
  // train/tr11-176B-ml/chronicles-prequel.md); those before it on V100 do not.
  if (mentions(f, "BigScience") && !run.gpu.starts_with("v100")) return "megatron-deepspeed-blocking";
  if (mentions(f, "Alpa")) return "maxtext";
  const bool megatron = mentions(f, "Megatron") || mentions(f, "NeoX");
  const bool eager = mentions_one(f, {"DeepSpeed", "PyTorch", "OLMo", "litgpt", "Lightning"});
  if (eager && !megatron && run.precision != "fp16") return "pytorch";
  if (mentions(f, "DeepSpeed") || mentions(f, "NeoX")) return "megatron-deepspeed";
  if (classic && (mentions(f, "Megatron") || mentions(f, "Aceso"))) return "megatron-lm";
  return mentions(f, "NeMo") || mentions(f, "Bridge") ? "megatron-bridge" : "megatron-core";
}

// Forks and papers before Transformer Engine have Megatron-LM's own layers.
bool has_transformer_engine(const RunRecord& run) { return mentions(run.framework, "Core"); }

// It takes cuDNN's attention on Hopper since its 1.3 of February 2024 (pytorch/attention.py there); what was
// published in the months after may have been run with the one before.
bool prefers_cudnn(const RunRecord& run) {
  return has_transformer_engine(run) && !released_before(run, {2024, 7});
}

bool is_blackwell(const RunRecord& run) { return mentions_one(run.gpu, {"b200", "b300"}); }

// DeepSpeed without Megatron runs models of other libraries: kernels of PyTorch, and for those with RMS
// norms, which came after it, flash attention.
void take_models_of_others(const RunRecord& run, Execution& e) {
  if (e.framework != "megatron-deepspeed" || mentions_one(run.framework, {"Megatron", "NeoX"}) ||
      run.model.norm != NormKind::rms_norm)
    return;
  e.attention = AttentionKernel::flash2;
  e.elementwise = ElementwiseKernels::eager;
  e.rms_norm_bytes = 4;
  // The peak of their tensors was read: the share's gradients in fp32 come in the step, when activations
  // are gone (step in deepspeed/runtime/zero/stage_1_and_2.py).
  e.optimizer_bytes = 12;
}

// DeepSpeed gathers module by module as they are reached, and copies each gathered buffer into its weights
// (runtime/zero/partition_parameters.py); Megatron's frameworks of it say so themselves.
void set_sharding(const RunRecord& run, Execution& e) {
  // Those that were published with a pipeline have a trainer of their own in place of PyTorch's stages.
  if (e.framework == "pytorch") e.keeps_gathered_in_pipeline = false;
  if (!mentions_one(run.framework + run.sharding, {"DeepSpeed", "ZeRO"})) return;
  static const double rate = values_of_framework("megatron-deepspeed", "").sharded_network_rate;
  if (mentions_one(e.framework, {"fsdp", "pytorch", "transformers"})) e.sharded_network_rate = rate;
}

void set_states(const RunRecord& run, Execution& e) {
  // Some fine-tune all in 16 bits.
  static const std::regex narrow(R"(bf16-true|[Pp]ure[ _-]?bf16|(all|moments|states|Adam\w*) in bf16)");
  if (finds(run.options + run.notes, narrow)) {
    e.weight_bytes = e.gradient_bytes = e.bf16_gradient_bytes = 2;
    e.optimizer_bytes = 4;
  }
  // DeepSpeed's data_types may say so in place of fp32 (runtime/config.py, grad_accum_dtype).
  static const std::regex narrow_sums("bf16 gradient accumulation");
  if (says(run.notes, narrow_sums)) e.bf16_gradient_bytes = 2;
  // Its recipes of 2024 took Apex's optimizer (NVIDIA/dgxc-benchmarking, nemotron4-340b-synth.yaml,
  // distributed_fused_adam), which beside bf16 weights keeps the lower 16 bits of the masters alone
  // (store_param_remainders in NVIDIA/NeMo, setup_optimization).
  const bool of_2024 = released_before(run, {2025, 1}) && !released_before(run, {2024, 1});
  if (e.framework == "megatron-bridge" && run.precision == "bf16" && of_2024) e.optimizer_bytes = 10;
  // In fp16 its fork of Megatron-LM keeps gradients as they come, unless told to add them up in fp32
  // (microsoft/SuperScaler, runtime/megatron/arguments.py; Dazz993/Mist gives the command).
  if (mentions(run.framework, "Aceso")) e.gradient_bytes = 2;
  // Its benchmarks make models in 16 bits, of which PyTorch's Adam keeps two moments as wide
  // (NVIDIA-NeMo/Automodel, examples/benchmark/configs: torch.optim.Adam, no master weights).
  if (mentions(run.framework, "AutoModel")) {
    e.weight_bytes = 2;
    e.optimizer_bytes = 4;
  }
}

// Megatron-Bridge's performance recipes sum gradients in 16 bits and have Transformer Engine's loss; those of
// its library sum in fp32 and have Megatron-Core's own (src/megatron/bridge/recipes, models/gpt_provider.py).
void set_library_recipe(const RunRecord& run, Execution& e) {
  static const std::regex library("[Ll]ibrary recipe|[Rr]ecipe of the (container|library)");
  if (e.framework != "megatron-bridge" || !says(run.notes, library)) return;
  e.gradient_bytes = e.reduced_bytes = 4;
  e.loss = LossKernel::fp32;
}

void set_tensor_sums(const RunRecord& run, Execution& e) {
  // Sums beside weight gradients came to Megatron-LM in 2022, with sequence parallelism (arXiv:2205.05198;
  // linear_with_grad_accumulation_and_async_allreduce in its tensor_parallel/layers.py).
  const bool of_megatron = mentions(run.framework, "Megatron") || e.framework == "internevo";
  if (mentions(run.source, "2205.05198")) e.sums_beside_weight_gradient = true;
  if (!of_megatron || mentions(run.source, "2201.11990") || mentions(run.notes, "all communication exposed"))
    e.sums_beside_weight_gradient = false;
  // ATorch splits the modules of such a model over tensor ranks one by one (get_llama_tpinfo in dlrover,
  // atorch/examples/llama2/ds_3d_llama2.py; ColumnParallelLinear in atorch/modules/distributed_modules).
  if (mentions_one(run.framework, {"ATorch", "atorch"})) e.sums_each_projection = true;
}

bool uses_liger(const RunRecord& run) {
  static const std::regex liger("Liger");
  return says(run.notes, liger);
}

// torchtitan compiles where it is told to (its `compile.enable`, false where a file does not say it).
bool is_compiled(const RunRecord& run) {
  static const std::regex words(R"(torch\.compile(?! (was|must|(for|of) the loss)))");
  return run.compiled.value_or(!mentions(run.framework, "torchtitan") || says(run.notes, words));
}

// And it compiled the whole model but not the loss until 2025 (pytorch/torchtitan at 9dec370, train.py).
bool loss_is_eager(const RunRecord& run) { return !is_compiled(run) || released_before(run, {2025, 4}); }

// fp32 copies of the logits that an eager loss has: the cast, its logarithmic softmax and the gradient. Over
// a vocabulary in shares the shifted logits and their exponentials stand beside
// (torch/distributed/tensor/parallel/loss.py).
int64_t logit_copies_of_eager_loss(const RunRecord& run) { return run.tensor.value_or(1) > 1 ? 5 : 3; }

void set_loss(const RunRecord& run, Execution& e) {
  if (run.fused_loss) e.loss = *run.fused_loss ? LossKernel::fused : LossKernel::fp32;
  if (e.framework == "megatron-core" && mentions(run.options, "\"use-distributed-optimizer\"") &&
      !mentions(run.options, "cross-entropy-loss-fusion"))
    e.loss = LossKernel::fp32;
  // Until July 2026 its gradient took the logits' own place (NVIDIA/TransformerEngine before 01bbe3eea,
  // transformer_engine/pytorch/triton/cross_entropy.py).
  if (mentions(run.options, "\"cross-entropy-fusion-impl\":\"te\"")) e.loss = LossKernel::fused;
  if (e.framework == "torchtitan" && loss_is_eager(run)) {
    e.loss = LossKernel::fp32;
    e.logit_copies = logit_copies_of_eager_loss(run);
  }
  // Until 2025 it shifted the logits by a position into a copy (huggingface/transformers, loss/loss_utils.py,
  // and before that every model's own forward).
  if (e.framework == "transformers-fsdp" && released_before(run, {2025, 1})) e.logit_copies = 4;
  // ChunkedCELoss is in its configurations since its 786e26f8e of 27 April 2026, and in those that trace a
  // whole graph since e6ef9ba8a of 16 June.
  const bool traced = mentions_one(run.notes, {"graph_trainer", "traced graph"});
  if (mentions(run.framework, "torchtitan") && run.released && !run.released_at_the_latest &&
      !released_before(run, {2026, traced ? 7 : 5}))
    e.loss = LossKernel::chunked;
  // Its losses come from flash-attention (mosaicml/llm-foundry, modeling_mpt.py, fused_crossentropy).
  if (mentions(run.framework, "foundry")) e.loss = LossKernel::fused;
  // The head's product and the loss of some tokens at a time.
  static const std::regex chunks(
      R"([Ff]used linear cross|[Cc]hunked (loss|cross|CE)|[Tt]iled (loss|logits))");
  if (finds(run.options + run.notes, chunks) || uses_liger(run)) e.loss = LossKernel::chunked;
  if (run.vocabulary_is_padded) e.vocabulary_multiple = 1;
}

void set_attention(const RunRecord& run, Execution& e) {
  // FlashAttention-2 came to it in August 2023 (PaddlePaddle/Paddle, pull requests 55758 and 56015).
  if (mentions(run.framework, "PaddlePaddle 2.5.1")) e.attention = AttentionKernel::flash1;
  if (e.framework == "megatron-core" && !prefers_cudnn(run)) e.attention = AttentionKernel::flash2;
  // PyTorch's own attention is the second since its 2.2 of January 2024 (pytorch/pytorch, release notes);
  // llm-foundry's tables are older.
  if (e.framework == "pytorch" && (mentions(run.framework, "foundry") || released_before(run, {2024, 2})))
    e.attention = AttentionKernel::flash1;
  // Of a framework's own choice the words of a run may tell another. The tables were measured with the third
  // generation on Hopper; what came with Blackwell is no slower.
  if (e.attention != AttentionKernel::cudnn) {
    const std::optional<int> named = named_flash(run.options + run.notes);
    if (named == 1 || (named == 0 && writes_scores(e.attention))) e.attention = AttentionKernel::flash1;
    if (named == 2) e.attention = AttentionKernel::flash2;
    if (named >= 3) e.attention = AttentionKernel::flash;
    if (mentions_one(run.notes, {"cuDNN kernel", "cuDNN attention"})) e.attention = AttentionKernel::cudnn;
    if (mentions(run.notes, "eager attention")) e.attention = AttentionKernel::plain;
  }
  // cuDNN's attention for Blackwell has its speed since 9.17 (NVIDIA/cudnn-frontend, README of its benchmark
  // at 0b1577c and b372d39), which NeMo's containers have since 2026.
  if (e.attention == AttentionKernel::cudnn && is_blackwell(run) && released_before(run, {2026, 1}))
    e.attention = AttentionKernel::flash;
  // The helper of its recipes turns the first on (NVIDIA-NeMo/Megatron-Bridge, perf_recipes/qwen/common.py).
  e.fp8_attention = mentions_one(run.options, {"fp8_dot_product_attention\":true", "full_iteration_mxfp8"});
  e.fp8_head = mentions(run.options, "fp8_output_proj\":true");
  // Megatron-LM's --attention-backend (megatron/training/arguments.py).
  if (mentions(run.options, "\"attention-backend\":\"unfused\"")) e.attention = AttentionKernel::unfused;
  if (mentions(run.options, "\"attention-backend\":\"flash\"")) e.attention = AttentionKernel::flash2;
  if (mentions(run.options, "\"attention-backend\":\"fused\"")) e.attention = AttentionKernel::cudnn;
  if (mentions(run.options, "\"attention_kernel\":\"torch\"")) e.attention = AttentionKernel::plain;
  if (mentions(run.options, "\"attention_kernel\":\"flash_attentionv1"))
    e.attention = AttentionKernel::flash1;
  // On Blackwell it takes cuDNN's attention, which its list of what to keep leaves out (pytorch/torchtitan at
  // 6fc499f, models/attention.py and models/llama3/infra/parallelize.py).
  if (e.framework == "torchtitan" && is_blackwell(run)) e.keeps_core_output = false;
}

void set_dropout(const RunRecord& run, Execution& e) {
  // Megatron-LM drops a tenth of the hidden units unless told otherwise (megatron/training/arguments.py).
  if (e.framework == "megatron-core" && mentions(run.framework, "CI golden values")) e.dropout = true;
  // Models with RMS norms are trained without; Aleph Alpha's example of one drops a tenth everywhere
  // (Aleph-Alpha/scaling, examples/transformer_example/config.yml).
  const bool drops = e.framework == "aleph-alpha-scaling" || run.model.norm != NormKind::rms_norm;
  if (mentions(run.options, "dropout\":0.0") || !drops) e.dropout = false;
}

void set_experts(const RunRecord& run, Execution& e) {
  static const std::regex deepep("DeepEP|deepep"), hybridep("HybridEP|hybridep");
  const std::string words = run.options + run.overlap + run.framework + run.notes;
  if (says(words, deepep)) e.deduplicates_dispatch = true;
  // Its dispatch pads for experts, too (megatron/core/transformer/moe/token_dispatcher.py, _HybridEPManager).
  if (says(words, hybridep)) frameworks::send_tokens_once(e);
}

// What the host still does for a layer of experts whose attention or router comes out of a graph: no more
// than the shortest such layers of published runs take as a whole.
constexpr double kGraphedExpertLayerUs = 5000.0;

void set_graphs(const RunRecord& run, Execution& e) {
  static const std::regex whole("full_iteration|[Ff]ull[- ]iteration CUDA graph|CUDA graph of the whole"),
      scoped(R"(graph[_-]scope":\[?"?(attn|moe_router)|CUDA graphs? (of|over|per)\b|[Pp]artial CUDA graph)");
  const std::string words = run.options + run.notes;
  // With graphs of the whole step came kernels that have a whole expert (NVTE_CUTEDSL_FUSED_GROUPED_MLP
  // beside use_transformer_engine_op_fuser in Megatron-Bridge's recipes).
  if (says(words, whole)) e.graphs = e.fuses_experts = true;
  if (says(words, scoped)) e.expert_layer_us = std::min(e.expert_layer_us, kGraphedExpertLayerUs);
  // Megatron-Bridge's tables have them as their recipes do: without one they are open, and taken for what is
  // fastest.
  if (mentions(run.source, "performance-summary") && !mentions(run.options, "\"configuration\""))
    e.expert_layer_us = 0.0;
}

void set_small_kernels(const RunRecord& run, Execution& e) {
  if (mentions(run.options, "\"rmsnorm_kernel\":true")) e.rms_norm_bytes = 0;
  // Megatron-LM's own layers sum biases' gradients apart (megatron/core/tensor_parallel/layers.py).
  if (e.framework == "megatron-core" && !mentions(run.framework, "CI golden values"))
    e.fuses_bias_gradients = false;
  // Norms, rotary positions and gated activations are kernels of Liger's (linkedin/Liger-Kernel, README).
  if (uses_liger(run)) {
    e.elementwise = ElementwiseKernels::fused;
    e.rms_norm_bytes = 0;
  }
  // Norms, rotary positions and the loss of flash-attention, the gated activation of xFormers
  // (jzhang38/TinyLlama, lit_gpt/model.py and pretrain/tinyllama.py).
  if (mentions(run.notes, "Fused kernels of flash-attention")) {
    e.elementwise = ElementwiseKernels::fused;
    e.loss = LossKernel::fused;
  }
  if (run.compiled.value_or(false)) e.elementwise = ElementwiseKernels::compiled;
  // What is not compiled has gpt-oss' biases, limits and factors in kernels of their own.
  if (!is_compiled(run) && e.elementwise == ElementwiseKernels::compiled) {
    e.elementwise = ElementwiseKernels::eager;
    e.extras_apart = true;
  }
}

}  // namespace

Execution execution_of(const RunRecord& run) {
  Execution e = values_of_framework(framework_of(run), "layout/execution");
  take_models_of_others(run, e);
  set_states(run, e);
  set_sharding(run, e);
  set_tensor_sums(run, e);
  set_loss(run, e);
  set_library_recipe(run, e);
  set_attention(run, e);
  set_dropout(run, e);
  set_experts(run, e);
  set_graphs(run, e);
  set_small_kernels(run, e);
  if (run.execution.is_null()) return e;
  Json fields = run.execution;
  if (const auto name = run.execution.find("framework"); name != run.execution.end() && name->is_string()) {
    e = values_of_framework(name->get<std::string>(), "layout/execution/framework");
    fields.erase("framework");
  }
  return frameworks::with_fields(e, fields, "layout/execution");
}

}  // namespace mpt::planner
