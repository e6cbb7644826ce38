// SPDX-License-Identifier: Apache-2.0

// What the words of a record's source tell of kernels, states, overlaps and networks.

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "planner/validate/predict_run.h"
#include "planner/validate/resolved_run.h"
#include "tests/planner/run_records.h"

namespace mpt::planner {
namespace {

Execution execution_of(const char* framework, const char* notes, const char* precision = "bf16") {
  Json json = small_pipeline(framework, 2);
  json["layout"]["precision"] = precision;
  json["notes"] = notes;
  return predicted(json).layout.execution;
}

TEST(RunWords, NameTheGenerationOfFlashAttention) {
  for (const auto& [notes, kernel] : {std::pair{"Flash attention 2 throughout.", AttentionKernel::flash2},
                                      {"attn: flash_attn_2", AttentionKernel::flash2},
                                      {"Attention: FA3.", AttentionKernel::flash},
                                      {"FlashAttention-3", AttentionKernel::flash},
                                      {"FlashAttention 4, torch.compile", AttentionKernel::flash},
                                      {"SDPA, cuDNN kernel on Hopper", AttentionKernel::cudnn},
                                      {"cuDNN attention; FA2 was slower", AttentionKernel::cudnn},
                                      {"flash_attn 1", AttentionKernel::flash1},
                                      {"FlashAttention", AttentionKernel::flash2},
                                      {"", AttentionKernel::flash2},
                                      {"of 2023-10", AttentionKernel::flash1},
                                      {"eager attention", AttentionKernel::plain}}) {
    EXPECT_EQ(execution_of("PyTorch FSDP", notes).attention, kernel) << notes;
  }
  // Unfused of its own; and three letters within a word are no generation.
  EXPECT_EQ(execution_of("GPT-NeoX (DeepSpeed)", "", "fp16").attention, AttentionKernel::unfused);
  EXPECT_EQ(execution_of("GPT-NeoX (DeepSpeed)", "Flash attention in the yml", "fp16").attention,
            AttentionKernel::flash1);
  EXPECT_EQ(execution_of("PyTorch FSDP", "commit 0FA33").attention, AttentionKernel::flash2);
}

TEST(RunWords, TellLibrariesOfModelsFromTheirSharding) {
  for (const char* framework :
       {"HF Trainer + DeepSpeed ZeRO-3", "TRL SFTTrainer (HF Transformers, Accelerate FSDP2)",
        "DeepSpeed + HF Transformers (ArcticTraining)", "Hugging Face transformers + PyTorch FSDP1"})
    EXPECT_EQ(execution_of(framework, "").framework, "transformers-fsdp") << framework;
  EXPECT_EQ(execution_of("SomeForge (PyTorch FSDP2/DTensor)", "").framework, "torchtitan");
}

TEST(RunWords, SayThatAllStatesAreNarrow) {
  for (const char* notes : {"pure bf16 training", "bf16-true", "AdamW, states in bf16 as the weights"}) {
    const Execution e = execution_of("PyTorch FSDP", notes);
    EXPECT_EQ(e.weight_bytes + e.gradient_bytes + e.optimizer_bytes, 8) << notes;
  }
  EXPECT_EQ(execution_of("Megatron-DeepSpeed", "pure bf16").bf16_gradient_bytes, 2) << "nor a sum in fp32";
  EXPECT_NE(execution_of("PyTorch FSDP", "bf16 mixed precision").optimizer_bytes, 4);
}

TEST(RunWords, NameTheLossWithoutWholeLogits) {
  for (const char* notes : {"fused linear cross entropy", "chunked loss (no full logits)", "Liger kernels"})
    EXPECT_EQ(execution_of("Hugging Face transformers", notes).loss, LossKernel::chunked) << notes;
  for (const char* notes : {"99 GiB without Liger", "No Liger kernels", ""})
    EXPECT_EQ(execution_of("Hugging Face transformers", notes).loss, LossKernel::fp32) << notes;
  EXPECT_EQ(execution_of("Hugging Face transformers", "Liger kernels").elementwise,
            ElementwiseKernels::fused);
}

TEST(RunWords, DeepSpeedGathersSlowerThanOthers) {
  const double deepspeed = execution_of("Megatron-DeepSpeed", "", "fp16").sharded_network_rate;
  EXPECT_LT(deepspeed, 1.0);
  EXPECT_EQ(execution_of("HF Trainer + DeepSpeed ZeRO-3", "").sharded_network_rate, deepspeed);
  EXPECT_EQ(execution_of("Hugging Face transformers + PyTorch FSDP1", "").sharded_network_rate, 1.0);
}

// Two nodes of replicas of a model of two layers, one micro-batch each.
double replicated_s(const char* network, const char* overlap = nullptr) {
  Json json = small_pipeline("Megatron-LM (bf16)", 1);
  json["hardware"]["gpus"] = json["layout"]["dp"] = json["layout"]["global_batch"] = 16;
  json["model"]["layers"] = 2;
  json["layout"]["precision"] = "bf16";
  json["hardware"]["inter_node"] = network;
  if (overlap != nullptr) json["layout"]["overlap"] = overlap;
  return predicted(json).step_s;
}

TEST(RunWords, ARateWithoutItsNodeIsAnAdapters) {
  const double per_gpu = replicated_s("InfiniBand, 100 Gb/s per GPU");
  EXPECT_EQ(replicated_s("InfiniBand 100 Gb/s (adapters per node not stated)"), per_gpu);
  EXPECT_GT(replicated_s("InfiniBand 100 Gb/s per node"), per_gpu);
}

TEST(RunWords, NoOverlapIsTaken) {
  const char* network = "InfiniBand 100 Gb/s per node";
  EXPECT_GT(replicated_s(network, "none"), 1.01 * replicated_s(network));
}

TEST(RunWords, SequenceParallelismIsFilledWhereItIsLeftOpen) {
  Json json = record();
  json["framework"] = "NeMo / Megatron-Core";
  json["layout"]["precision"] = "bf16";
  json["layout"]["sequence_parallel"] = nullptr;
  const RunPrediction open = predicted(json);
  EXPECT_TRUE(open.layout.sequence_parallel);
  EXPECT_EQ(std::count(open.filled.begin(), open.filled.end(), "layout.sequence_parallel = true"), 1);
  json["layout"]["sequence_parallel"] = false;
  EXPECT_FALSE(predicted(json).layout.sequence_parallel);
  json["framework"] = "Megatron-DeepSpeed";
  json["layout"]["sequence_parallel"] = nullptr;
  EXPECT_FALSE(predicted(json).layout.sequence_parallel) << "it has none";
}

// A byte for each of a stage's weights, a layer of 12 x 6,144^2 and what is beside them: 2 + 1 of 2 + 1 + 1.
// In NVFP4 2 bytes and twice 4 bits and the 8 that 16 of them share.
TEST(RunWords, BlackwellKeepsNoTransposedWeightsInFp8) {
  Json json = small_pipeline("Megatron-Core", 2);
  const auto weights = [&](const char* gpu, const char* precision) {
    json["hardware"]["gpu"] = gpu;
    json["layout"]["precision"] = precision;
    return double(predicted(json).memory[0].parameter_bytes);
  };
  const double both = weights("h100-sxm-80gb", "fp8"), one = weights("b200-sxm-180gb", "fp8");
  EXPECT_NEAR(one, 3.0 / 4.0 * both, 0.001 * both);
  EXPECT_EQ(weights("b200-sxm-180gb", "mxfp8"), both) << "scales by row are those of one order";
  EXPECT_NEAR(weights("b200-sxm-180gb", "nvfp4"), 3.125 / 4.0 * both, 0.001 * both);
  EXPECT_EQ(weights("b200-sxm-180gb", "bf16"), weights("h100-sxm-80gb", "bf16"));
}

TEST(RunWords, StandBehindTheExecutionThatALayoutNames) {
  Json json = small_pipeline("PyTorch FSDP", 2);
  json["notes"] = "FA3. Liger kernels.";
  json["layout"]["execution"] = {{"attention", "plain"}, {"launch_us", 3.5}};
  const Execution e = predicted(json).layout.execution;
  EXPECT_EQ(e.framework, "pytorch");
  EXPECT_EQ(e.attention, AttentionKernel::plain);
  EXPECT_EQ(e.launch_us, 3.5);
  EXPECT_EQ(e.loss, LossKernel::chunked) << "which it leaves as the words have it";
  json["layout"]["execution"] = {{"framework", "nemo"}, {"loss", "fp32"}};
  const Execution nemo = predicted(json).layout.execution;
  EXPECT_EQ(nemo.framework, "megatron-bridge");
  EXPECT_EQ(nemo.loss, LossKernel::fp32);
  EXPECT_TRUE(predicted(json).layout.overlap_gradient_reduce) << "as that framework overlaps";
}

TEST(RunWords, AWrongExecutionIsAnErrorWithItsField) {
  for (const auto& [execution, where] : {std::pair{Json("flash"), "layout/execution"},
                                         {Json{{"framework", "nemoo"}}, "layout/execution/framework"},
                                         {Json{{"framework", 1}}, "layout/execution/framework"},
                                         {Json{{"attention", "flash9"}}, "layout/execution at /attention"},
                                         {Json{{"no_such", 1}}, "layout/execution at /no_such"}}) {
    Json json = small_pipeline("PyTorch FSDP", 2);
    json["layout"]["execution"] = execution;
    try {
      predicted(json);
      ADD_FAILURE() << where;
    } catch (const UserError& e) {
      EXPECT_EQ(e.problems().front().where, where);
    }
  }
}

TEST(RunWords, StandBehindTheOverlapsThatALayoutNames) {
  Json json = small_pipeline("Megatron-Core", 1);
  json["layout"]["precision"] = "bf16";
  json["layout"]["tp"] = 2;
  json["hardware"]["gpus"] = 4;
  json["layout"]["dp"] = 2;
  EXPECT_TRUE(predicted(json).layout.overlap_gradient_reduce);
  EXPECT_FALSE(predicted(json).layout.overlap_tensor);
  json["layout"]["overlap_gradient_reduce"] = false;
  json["layout"]["overlap_tensor"] = json["layout"]["sequence_parallel"] = true;
  EXPECT_FALSE(predicted(json).layout.overlap_gradient_reduce);
  EXPECT_TRUE(predicted(json).layout.overlap_tensor);
}

TEST(RunWords, AreDeniedBeforeOrBehind) {
  const std::regex phrase("DeepEP|[Ee]xpert overlap");
  for (const char* text : {"DeepEP", "with DeepEP.", "no NCCL but DeepEP", "Expert overlap on",
                           "casino DeepEP", "no DeepEP at first, then DeepEP"})
    EXPECT_TRUE(says(text, phrase)) << text;
  for (const char* text : {"", "no DeepEP", "No DeepEP", "without DeepEP", "not the DeepEP",
                           "expert overlap off", "expert overlap is off", "DeepEP disabled", "DeepEP: off"})
    EXPECT_FALSE(says(text, phrase)) << text;
}

Json experts(const char* notes) {
  Json json = small_pipeline("Megatron-Core", 1);
  json["hardware"]["gpus"] = json["layout"]["dp"] = json["layout"]["ep"] = 8;
  json["layout"]["precision"] = "bf16";
  json["model"]["moe"] = {{"experts", 32}, {"topk", 4}, {"expert_ffn", 1024}};
  json["notes"] = notes;
  return json;
}

TEST(RunWords, NameTheDispatchOfTokens) {
  EXPECT_FALSE(predicted(experts("NCCL all-to-all, no DeepEP")).layout.execution.deduplicates_dispatch);
  EXPECT_TRUE(predicted(experts("DeepEP")).layout.execution.deduplicates_dispatch);
  EXPECT_TRUE(predicted(experts("DeepEP")).layout.execution.pads_expert_rows);
  EXPECT_FALSE(predicted(experts("HybridEP dispatcher")).layout.execution.pads_expert_rows);
  EXPECT_TRUE(predicted(experts("expert communication overlapped")).layout.overlap_exchange);
  EXPECT_TRUE(predicted(experts("Expert overlap on")).layout.overlap_exchange);
  for (const char* notes :
       {"no expert communication overlap", "expert overlap off", "expert overlap as of the recipe", ""})
    EXPECT_FALSE(predicted(experts(notes)).layout.overlap_exchange) << notes;
}

TEST(RunWords, NameWhatGraphsLaunch) {
  const Execution eager = predicted(experts("")).layout.execution;
  EXPECT_FALSE(eager.graphs);
  for (const char* notes : {"CUDA graphs of attention, router and preprocess", "partial CUDA graphs"}) {
    const Execution scoped = predicted(experts(notes)).layout.execution;
    EXPECT_FALSE(scoped.graphs) << notes;
    EXPECT_LT(scoped.expert_layer_us, eager.expert_layer_us) << notes;
  }
  for (const char* notes : {"full-iteration CUDA graph", "CUDA graph of the whole step."})
    EXPECT_TRUE(predicted(experts(notes)).layout.execution.graphs) << notes;
  for (const char* notes : {"No CUDA graphs", "CUDA graphs off", "no partial CUDA graphs"})
    EXPECT_EQ(predicted(experts(notes)).layout.execution, eager) << notes;
  // Tables whose recipes are not known are taken for the fastest that they may be.
  Json table = experts("");
  table["framework"] = "Megatron-Bridge / Megatron-Core";
  EXPECT_GT(predicted(table).layout.execution.expert_layer_us, 0.0);
  table["source"] = {{"path", "docs/performance-summary.md"}};
  EXPECT_EQ(predicted(table).layout.execution.expert_layer_us, 0.0);
  table["recipe"] = {{"configuration", "SOME_CONFIG"}};
  EXPECT_GT(predicted(table).layout.execution.expert_layer_us, 0.0);
}

TEST(RunWords, TellTorchtitansReleaseAndWhatItCompiles) {
  for (const char* notes : {"torch.compile", "with torch.compile of model and loss"})
    EXPECT_EQ(execution_of("torchtitan", notes).elementwise, ElementwiseKernels::compiled) << notes;
  for (const char* notes : {"", "no torch.compile", "torch.compile for the loss only",
                            "Whether torch.compile was on is not said"}) {
    EXPECT_EQ(execution_of("torchtitan", notes).elementwise, ElementwiseKernels::eager) << notes;
    EXPECT_TRUE(execution_of("torchtitan", notes).extras_apart) << notes;
  }
  EXPECT_EQ(execution_of("torchtitan", "2026-04-01").loss, LossKernel::fp32);
  EXPECT_EQ(execution_of("torchtitan", "2026-05-01").loss, LossKernel::chunked);
  EXPECT_EQ(execution_of("torchtitan", "2026-05-01, graph_trainer").loss, LossKernel::fp32);
  EXPECT_EQ(execution_of("torchtitan", "2026-07-01, graph_trainer").loss, LossKernel::chunked);
  EXPECT_NE(execution_of("SomeForge (PyTorch FSDP2/DTensor)", "2026-05-01").loss, LossKernel::chunked);
}

TEST(RunWords, TellALibraryRecipeFromATunedOne) {
  const char* framework = "Megatron-Bridge / Megatron-Core";
  const Execution tuned = execution_of(framework, ""), library = execution_of(framework, "library recipe");
  EXPECT_EQ(tuned.gradient_bytes, 2);
  EXPECT_EQ(tuned.loss, LossKernel::fused);
  EXPECT_EQ(library.gradient_bytes, 4);
  EXPECT_EQ(library.reduced_bytes, 4);
  EXPECT_EQ(library.loss, LossKernel::fp32);
  EXPECT_EQ(execution_of("Megatron-DeepSpeed", "bf16 gradient accumulation").bf16_gradient_bytes, 2);
}

TEST(RunWords, AreTracedWithTheirReader) {
  Json json = record();
  json["notes"] = "Peak by nvidia-smi. No DeepEP. Uses eager attention.";
  const WordTrace trace;
  const RunRecord run = read_run_record(json, "/0");
  const RunPrediction prediction = predict_run(run);
  const Json resolved = resolved_run(run, prediction, trace);
  const auto found = [&](const char* reader, const char* words) {
    const auto& all = trace.words();
    return std::count(all.begin(), all.end(), std::pair<std::string, std::string>(reader, words));
  };
  EXPECT_EQ(found("set_attention", "eager attention"), 1);
  EXPECT_EQ(found("memory_reading", "nvidia-smi"), 1);
  EXPECT_EQ(found("set_experts", "DeepEP"), 0) << "denied";
  EXPECT_EQ(resolved["words"].size(), trace.words().size());
  EXPECT_EQ(resolved["memory_read"]["how"], "device");
  EXPECT_EQ(resolved["framework"], "megatron-lm");
  EXPECT_EQ(resolved["execution"], Json({{"attention", "plain"}}));
  EXPECT_EQ(resolved["adjusted"], Json::object());
  EXPECT_EQ(resolved["cluster"]["device"], Json({{"like", "a100-sxm-80gb"}}));
  EXPECT_NEAR(resolved["s"].get<double>() / prediction.step_s, 1.0, 1e-8);
}

// A trace inside another one takes the words.
TEST(RunWords, AreNotTracedWithoutATrace) {
  const WordTrace outer;
  {
    const WordTrace inner;
    EXPECT_TRUE(mentions("some words", "words"));
    EXPECT_EQ(inner.words().size(), 1u);
  }
  EXPECT_TRUE(outer.words().empty());
}

}  // namespace
}  // namespace mpt::planner
