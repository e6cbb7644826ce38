// SPDX-License-Identifier: Apache-2.0

// How a record's words become a layout and a framework's kernels and bytes.

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "core/recompute_modules.h"
#include "planner/validate/predict_run.h"
#include "planner/validate/run_record.h"
#include "tests/planner/run_records.h"

namespace mpt::planner {
namespace {

// A layer of 4 x 2,048^2 + 3 x 8,192 x 2,048 weights, a head of 131,072 x 2,048, which is as much as four:
// the eleventh of the 16 layers begins in the first half.
TEST(PredictRun, NanotronSplitsByWeightsAndReportsItsFirstRank) {
  Json json = small_pipeline("nanotron 0.5", 2);
  for (const auto& [field, value] : {std::pair{"layers", 16},
                                     {"hidden", 2048},
                                     {"ffn_hidden", 8192},
                                     {"heads", 32},
                                     {"kv_heads", 32},
                                     {"seq_len", 4096},
                                     {"vocab", 131072}})
    json["model"][field] = value;
  json["layout"]["precision"] = "bf16";
  const RunPrediction p = predicted(json);
  EXPECT_EQ(p.layout.layers_per_stage, (std::vector<int64_t>{11, 5}));
  EXPECT_EQ(p.peak_gib, double(p.memory.front().peak_bytes) / double(int64_t{1} << 30));
}

// 48 layers, embedding, norm and head: 51 items over four stages.
TEST(PredictRun, AlephAlphasStagesHoldAsManyItems) {
  Json json = small_pipeline("Aleph Alpha Scaling", 4);
  json["layout"]["precision"] = "bf16";
  EXPECT_EQ(predicted(json).layout.layers_per_stage, (std::vector<int64_t>{12, 13, 13, 10}));
  json["hardware"]["gpus"] = json["layout"]["pp"] = 48;
  EXPECT_EQ(predicted(json).layout.layers_per_stage, std::vector<int64_t>(48, 1))
      << "no stage is without layers";
}

TEST(PredictRun, AdaptersOf800GbReachNoMoreThanThoseOf400) {
  Json json = record();
  json["framework"] = "Megatron-Core";
  json["hardware"]["gpu"] = "b300-sxm";
  json["hardware"]["gpus"] = 64;
  json["layout"]["dp"] = 8;
  json["layout"]["global_batch"] = 32;
  json["layout"]["precision"] = "bf16";
  const auto step_s = [&](const char* network) {
    json["hardware"]["inter_node"] = network;
    return predicted(json).step_s;
  };
  const double catalog = predicted(json).step_s, named = step_s("InfiniBand, 400 Gb/s per GPU");
  EXPECT_EQ(named, catalog);
  EXPECT_EQ(step_s("InfiniBand, 800 Gb/s per GPU"), named);
  EXPECT_EQ(step_s("16 x 400 Gb/s InfiniBand per node"), named);
  EXPECT_GT(step_s("InfiniBand, 200 Gb/s per GPU"), named);
  EXPECT_GT(step_s("400 Gb/s per GPU (RoCE)"), named) << "Ethernet sustains less of the same lines";
}

Json torchtitan_pipeline() {
  Json json = small_pipeline("torchtitan (PyTorch FSDP2)", 4);
  json["hardware"]["gpus"] = 8;
  json["layout"]["dp"] = 2;
  json["layout"]["precision"] = "bf16";
  json["layout"]["zero_stage"] = 3;
  return json;
}

TEST(PredictRun, TorchtitanCutsARanksBatchIntoAsManyMicroBatchesAsStages) {
  Json json = torchtitan_pipeline();
  json["layout"]["micro_batch"] = 32;
  const RunPrediction whole = predicted(json);
  EXPECT_EQ(whole.layout.micro_batch, 8);
  EXPECT_EQ(whole.filled, (std::vector<std::string>{"layout.micro_batch = 8"}));
  json["layout"]["micro_batch"] = nullptr;
  EXPECT_EQ(predicted(json).layout.micro_batch, 8);
  json["layout"]["micro_batch"] = 2;
  EXPECT_EQ(predicted(json).layout.micro_batch, 2) << "as the source says";
}

TEST(PredictRun, PyTorchsPipelinesGatherOnceAStep) {
  Json json = torchtitan_pipeline();
  json["hardware"]["gpus_per_node"] = json["hardware"]["nvlink_domain"] = 1;
  const RunPrediction kept = predicted(json);
  json["framework"] = "PyTorch FSDP";
  const RunPrediction gathers = predicted(json);
  EXPECT_LT(kept.step_s, 0.8 * gathers.step_s) << "32 micro-batches over a slow network";
  EXPECT_GT(kept.peak_gib, gathers.peak_gib);
}

TEST(PredictRun, LimitedDevicesRunAtTheirOwnRate) {
  Json json = small_pipeline("torchtitan", 1);
  json["hardware"]["gpu"] = "b200-sxm-180gb";
  const double free_s = predicted(json).step_s;
  json["notes"] = "Power-limited B200s";
  EXPECT_GT(predicted(json).step_s, 1.5 * free_s);
  json["hardware"]["gpu"] = "h100-sxm-80gb";
  const double unknown_s = predicted(json).step_s;
  json["notes"] = "";
  EXPECT_EQ(predicted(json).step_s, unknown_s) << "no rate is known of such an H100";
}

// Both run models of huggingface/transformers, whose loss copied the logits once more until 2025.
TEST(PredictRun, ModelsOfTransformersKeepMoreOfTheirLogits) {
  Json json = small_pipeline("ColossalAI (Gemini ZeRO-3)", 1);
  json["source"] = {{"commit_or_date", "0b00def88 2023-08-28"}};
  const RunPrediction shifted = predicted(json);
  EXPECT_EQ(shifted.layout.execution.framework, "transformers-fsdp");
  EXPECT_EQ(shifted.layout.execution.logit_copies, 4);
  json["source"] = {{"commit_or_date", "2024-05-01"}};
  EXPECT_EQ(predicted(json).layout.execution.logit_copies, 4);
  json["source"] = {{"commit_or_date", "e5fdefa6c 2025-09-26"}};
  EXPECT_EQ(predicted(json).layout.execution.logit_copies, 3);
  EXPECT_LT(predicted(json).peak_gib, shifted.peak_gib);
  json["framework"] = "ATorch (PyTorch FSDP)";
  EXPECT_EQ(predicted(json).layout.execution.framework, "atorch-fsdp");
  json["framework"] = "ATorch (DeepSpeed 3D parallel)";
  EXPECT_NE(predicted(json).layout.execution.framework, "atorch-fsdp");
}

// One stage of a node sends at a time: it has the node's one port alone, and of eight ports its own.
TEST(PredictRun, PortsOfANodeAreThoseThatItsNetworkNames) {
  Json json = small_pipeline("Megatron-LM", 16);
  json["layout"]["recompute"] = "full";
  json["hardware"]["inter_node"] = "25 Gb/s per node";
  const double together_s = predicted(json).step_s;
  json["hardware"]["inter_node"] = "8 x 3 Gb/s per node";
  EXPECT_GT(predicted(json).step_s, 1.2 * together_s);
}

TEST(PredictRun, CollectivesOfAlpaRunBesideNothing) {
  Json json = small_pipeline("Alpa (JAX)", 1);
  json["hardware"]["gpus"] = json["layout"]["dp"] = 8;
  const double alone_s = predicted(json).step_s;
  json["framework"] = "MaxText (JAX)";
  EXPECT_LT(predicted(json).step_s, alone_s);
}

TEST(PredictRun, WhatIsNotCompiledRunsInSingleKernels) {
  Json json = torchtitan_pipeline();
  json["layout"]["compile"] = true;
  const RunPrediction compiled = predicted(json);
  json["layout"]["compile"] = false;
  const RunPrediction eager = predicted(json);
  EXPECT_EQ(compiled.layout.execution.elementwise, ElementwiseKernels::compiled);
  EXPECT_EQ(eager.layout.execution.elementwise, ElementwiseKernels::eager);
  EXPECT_GT(eager.step_s, 1.03 * compiled.step_s);
}

TEST(PredictRun, DeepSpeedRunsModelsOfOtherLibrariesWithFlashAttention) {
  Json json = small_pipeline("ATorch (DeepSpeed 3D parallel)", 2);
  json["model"]["norm"] = "rmsnorm";
  json["model"]["gated_mlp"] = true;
  json["model"]["position"] = "rope";
  const Execution other = predicted(json).layout.execution;
  EXPECT_EQ(other.attention, AttentionKernel::flash2);
  EXPECT_EQ(other.rms_norm_bytes, 4);
  EXPECT_EQ(other.optimizer_bytes, 12);
  EXPECT_TRUE(other.sums_each_projection);
  json["framework"] = "Megatron-DeepSpeed";
  const Execution megatron = predicted(json).layout.execution;
  EXPECT_EQ(megatron.attention, AttentionKernel::unfused);
  EXPECT_EQ(megatron.rms_norm_bytes, 0);
  EXPECT_FALSE(megatron.sums_each_projection);
}

TEST(PredictRun, AutoModelKeepsItsStatesIn16Bits) {
  Json json = small_pipeline("NeMo AutoModel (PyTorch FSDP2, Transformer Engine)", 1);
  const RunPrediction narrow = predicted(json);
  json["framework"] = "torchtitan (FSDP2)";
  json["layout"]["compile"] = true;
  const RunPrediction wide = predicted(json);
  EXPECT_EQ(narrow.layout.execution.framework, wide.layout.execution.framework);
  EXPECT_LT(narrow.peak_gib, wide.peak_gib);
  EXPECT_EQ(narrow.step_s, wide.step_s);
}

TEST(PredictRun, TorchtitanCompilesWhereItIsToldTo) {
  Json json = small_pipeline("torchtitan (FSDP2)", 1);
  const auto execution = [&] { return predicted(json).layout.execution; };
  EXPECT_EQ(execution().elementwise, ElementwiseKernels::eager);
  EXPECT_EQ(execution().loss, LossKernel::fp32);
  json["layout"]["compile"] = true;
  EXPECT_EQ(execution().elementwise, ElementwiseKernels::compiled);
  EXPECT_EQ(execution().loss, LossKernel::fused);
  json["source"]["commit_or_date"] = "069bae286 2025-02-27";
  EXPECT_EQ(execution().elementwise, ElementwiseKernels::compiled);
  EXPECT_EQ(execution().loss, LossKernel::fp32) << "the loss was not compiled then";
}

TEST(PredictRun, MegatronsAttentionIsWhatItsWordsSay) {
  Json json = small_pipeline("Megatron-LM", 1);
  const auto attention = [&] { return predicted(json).layout.execution.attention; };
  json["layout"]["precision"] = "fp16";
  EXPECT_EQ(attention(), AttentionKernel::unfused);
  json["notes"] = "No flash attention in that version.";
  EXPECT_EQ(attention(), AttentionKernel::unfused);
  json["notes"] = "Options of the script: flash attention, dropout 0.";
  EXPECT_EQ(attention(), AttentionKernel::flash2);
  json["framework"] = "Megatron-LM / Megatron-Core";
  json["layout"]["precision"] = "bf16";
  json["source"]["commit_or_date"] = "2bc6cd3 2024-01-01";
  EXPECT_EQ(attention(), AttentionKernel::flash2);
  json["source"]["commit_or_date"] = "e865051 2026-05-16";
  EXPECT_EQ(attention(), AttentionKernel::cudnn);
  for (const auto& [backend, kernel] : {std::pair{"flash", AttentionKernel::flash2},
                                        {"fused", AttentionKernel::cudnn},
                                        {"unfused", AttentionKernel::unfused}}) {
    json["layout"]["options"]["attention-backend"] = backend;
    EXPECT_EQ(attention(), kernel);
  }
}

TEST(PredictRun, SchedulesOfTwoChunksAreThoseThatTheyAreCalled) {
  Json json = small_pipeline("Megatron-LM", 4);
  json["layout"]["vpp"] = 2;
  for (const auto& [said, schedule] : {std::pair{"1f1b-interleaved", "interleaved"},
                                       {"v-half", "v-half"},
                                       {"V-Min", "v-min"},
                                       {"zb-v", "zb-v"}}) {
    json["layout"]["schedule"] = said;
    EXPECT_EQ(predicted(json).layout.schedule, schedule);
  }
}

TEST(PredictRun, PaddleHasTheAttentionOfItsRelease) {
  Json json = small_pipeline("PaddlePaddle 2.5.1 / PaddleNLP", 2);
  EXPECT_EQ(predicted(json).layout.execution.attention, AttentionKernel::flash1);
  json["framework"] = "PaddleNLP (PaddlePaddle)";
  EXPECT_EQ(predicted(json).layout.execution.attention, AttentionKernel::flash2);
}

// cuDNN's kernels for Blackwell are in NeMo's containers of 2026, those for Hopper in all.
TEST(PredictRun, NemoHasTheAttentionOfItsContainer) {
  Json json = small_pipeline("Megatron-Bridge / Megatron-Core", 2);
  json["layout"]["precision"] = "mxfp8";
  const auto execution = [&](const char* gpu, const char* container) {
    json["hardware"]["gpu"] = gpu;
    json["source"]["commit_or_date"] = container;
    return predicted(json).layout.execution;
  };
  EXPECT_EQ(execution("gb300", "067f987df (NeMo container 26.04)").attention, AttentionKernel::cudnn);
  EXPECT_EQ(execution("gb300", "067f987df (NeMo container 25.11)").attention, AttentionKernel::flash);
  EXPECT_EQ(execution("h100-sxm-80gb", "067f987df (NeMo container 25.11)").attention, AttentionKernel::cudnn);
}

// Layers of Transformer Engine or, in forks before it, of Megatron-LM's own.
TEST(PredictRun, BiasGradientsAreFusedByTransformerEngine) {
  const auto fuses = [](const char* framework) {
    Json json = small_pipeline(framework, 2);
    json["layout"]["precision"] = "bf16";
    return predicted(json).layout.execution.fuses_bias_gradients;
  };
  EXPECT_TRUE(fuses("Megatron-Core (CI golden values)"));
  EXPECT_TRUE(fuses("Megatron-Bridge / Megatron-Core"));
  EXPECT_FALSE(fuses("Megatron-LM"));
}

TEST(PredictRun, RecipesTurnAttentionAndHeadInFp8On) {
  Json json = small_pipeline("Megatron-Bridge / Megatron-Core", 2);
  json["layout"]["precision"] = "mxfp8";
  const Execution none = predicted(json).layout.execution;
  EXPECT_FALSE(none.fp8_attention || none.fp8_head);
  json["recipe"] = {{"fp8_dot_product_attention", true}, {"fp8_output_proj", true}};
  const Execution both = predicted(json).layout.execution;
  EXPECT_TRUE(both.fp8_attention && both.fp8_head);
  json["recipe"] = {{"helpers", {"_benchmark_common", "_enable_hybridep_full_iteration_mxfp8"}}};
  const Execution helper = predicted(json).layout.execution;
  EXPECT_TRUE(helper.fp8_attention && helper.graphs && !helper.fp8_head);
}

// 46 layers over 4 stages of 3 chunks: with embedding and head there are 48.
TEST(PredictRun, EmbeddingAndHeadAreLayersWhereLayersDoNotDivide) {
  Json json = small_pipeline("Megatron-Core", 4);
  for (const auto& [field, value] : {std::pair{"layers", 46}, {"hidden", 2048}, {"ffn_hidden", 8192}})
    json["model"][field] = value;
  json["layout"]["precision"] = "bf16";
  json["layout"]["schedule"] = nullptr;
  json["layout"]["vpp"] = nullptr;
  const RunPrediction p = predicted(json);
  EXPECT_GT(p.layout.chunks, 1) << "fewer bubbles";
  EXPECT_EQ(p.layout.layers_per_stage.front() + 1, p.layout.layers_per_stage[1]);
  EXPECT_EQ(p.layout.layers_per_stage.back() + 1, p.layout.layers_per_stage[1]);
}

TEST(PredictRun, BlocksOfScalesAreNamedByPrecisionOrId) {
  const auto precision_of = [](const char* precision, const char* id) {
    Json json = record();
    json["hardware"]["gpu"] = "b200-sxm-180gb";
    json["layout"]["precision"] = precision;
    json["id"] = id;
    return predicted(json).layout.precision;
  };
  EXPECT_EQ(precision_of("fp8", "bridge-25.11-llama3-8b-b200-sxm-8-fp8-cs-s8192"), Precision::fp8);
  EXPECT_EQ(precision_of("fp8", "bridge-25.11-llama3-8b-b200-sxm-8-fp8-mx-s8192"), Precision::mxfp8);
  EXPECT_EQ(precision_of("mxfp8", "bridge-26.06-llama3-8b"), Precision::mxfp8);
  EXPECT_EQ(precision_of("nvfp4", "mlperf-llama3.1-8b"), Precision::nvfp4);
}

TEST(PredictRun, OperatorsThatRecomputeSayHowMuchOfALayerDoes) {
  Json json = small_pipeline("Aceso runtime (Megatron-LM 2.x fork)", 2);
  json["layout"]["recompute"] = "per";
  const auto recompute_of = [&](int first, int second) {
    json["layout"]["stages"] = Json::array({{{"gpus", 1}, {"ops", 157}, {"recompute_ops", first}},
                                            {{"gpus", 1}, {"ops", 158}, {"recompute_ops", second}}});
    return predicted(json).layout.recompute;
  };
  EXPECT_EQ(recompute_of(60, 40), Recompute::selective);
  EXPECT_EQ(recompute_of(120, 40), Recompute::full);
}

TEST(PredictRun, ExpertsAreSplitAsAllElseWhereNothingIsSaid) {
  Json json = record();
  json["model"]["moe"] = {{"experts", 8}, {"topk", 2}, {"expert_ffn", 1024}};
  json["hardware"]["gpus"] = 16;
  json["layout"]["tp"] = 2;
  json["layout"]["dp"] = 8;
  json["layout"]["ep"] = 4;
  json["layout"]["micro_batch"] = 1;
  json["layout"]["global_batch"] = 64;
  EXPECT_EQ(predicted(json).layout.expert_split(), 2);
  json["layout"]["etp"] = 1;
  EXPECT_EQ(predicted(json).layout.expert_split(), 1);
}

TEST(PredictRun, MegatronsListOfStagesIsTaken) {
  Json json = small_pipeline("Megatron-Core", 2);
  json["layout"]["vpp"] = nullptr;
  json["layout"]["options"] = {{"pipeline-model-parallel-layout", "Et*20|(t*10|)*2t*8L"}};
  const RunPrediction listed = predicted(json);
  EXPECT_EQ(listed.layout.layers_per_stage, (std::vector<int64_t>{20, 10, 10, 8}));
  EXPECT_EQ(listed.layout.chunks, 2);
  EXPECT_EQ(listed.layout.schedule, "interleaved");
  // What does not add up to the model's layers, and what is no list.
  for (const Json& other : {Json("Et*20|t*20L"), Json("Et*20"), Json(3)}) {
    json["layout"]["options"]["pipeline-model-parallel-layout"] = other;
    if (other.is_number()) {
      EXPECT_THROW(predicted(json), UserError);
    } else {
      EXPECT_EQ(predicted(json).layout.layers_per_stage, (std::vector<int64_t>{24, 24})) << other;
    }
  }
}

// Megatron-LM's module by module: what is named leaves, but for one layer on its way.
TEST(PredictRun, ModulesWaitInTheHostsMemory) {
  Json json = small_pipeline("Megatron-Core", 2);
  json["layout"]["options"] = {{"fine-grained-activation-offloading", true}, {"offload-modules", "[]"}};
  const auto activations = [&](const char* modules) {
    json["layout"]["options"]["offload-modules"] = modules;
    return double(predicted(json).memory[0].activation_peak_bytes);
  };
  const double none = activations("[]"), core = activations("[core_attn]"),
               more = activations("[core_attn qkv_linear attn_proj]");
  EXPECT_LT(core, 0.9 * none);
  EXPECT_LT(more, core);
  json["layout"]["options"]["fine-grained-activation-offloading"] = false;
  EXPECT_EQ(activations("[core_attn]"), none);
}

TEST(PredictRun, NodesBeforeTheirRepairAreSlower) {
  Json json = small_pipeline("Megatron-DeepSpeed (BigScience)", 2);
  json["notes"] = "Section \"NHEADs comparison\", date 02-23.";
  const double before = predicted(json).step_s;
  json["notes"] = "Section \"GBS Variations\", date 02-25.";
  const double after = predicted(json).step_s;
  EXPECT_GT(before, 1.03 * after);
  EXPECT_LT(before, after / 0.94);
}

// Seven hundredths of the products' rate are no more than that of the step, and most of it; of short
// sequences, since attention became faster by itself, too.
TEST(PredictRun, LibrariesOfBlackwellsFirstYearAreSlower) {
  Json json = small_pipeline("Megatron-Core", 2);
  json["model"]["seq_len"] = 256;
  json["layout"]["micro_batch"] = 8;
  json["layout"]["precision"] = "bf16";
  const auto seconds = [&](const char* gpu, const char* date) {
    json["hardware"]["gpu"] = gpu;
    json["source"] = {{"path", "performance.md"}, {"commit_or_date", date}};
    return predicted(json).step_s;
  };
  const double now = seconds("gb200", "2026-08-22 (NeMo container 26.06)");
  for (const char* date :
       {"2026-08-22 (NeMo container 25.11)", "2025-06-09 (tag v25.03)", "NeMo 25.04 container"}) {
    EXPECT_GT(seconds("gb200", date), 1.04 * now) << date;
    EXPECT_LT(seconds("gb200", date), now / 0.92) << date;
  }
  EXPECT_EQ(seconds("gb200", "2026-05-11"), now);
  EXPECT_EQ(seconds("h100-sxm-80gb", "2025-06-09"), seconds("h100-sxm-80gb", "2026-06-09"));
}

TEST(PredictRun, PlainNormsAndGatheredLogitsCostWhatTheyMove) {
  Json json = small_pipeline("Aleph Alpha Scaling", 2);
  json["model"]["norm"] = "rmsnorm";
  json["layout"]["options"] = {{"attention_kernel", "flash_attention2"}, {"rmsnorm_kernel", true}};
  const RunPrediction fused = predicted(json);
  json["layout"]["options"]["rmsnorm_kernel"] = false;
  const RunPrediction plain = predicted(json);
  // Two norms a layer of 6,144 units: (36 + 84 - 2.5 x (4 + 6)) bytes at some 1.8 TB/s for each of 131,072
  // tokens and 24 layers, of which the last stage has as many.
  const double tokens = 64.0 * 2048.0, more = 2.0 * 24.0 * tokens * 6144.0 * 95.0 / (0.9 * 2.039e12);
  EXPECT_NEAR(plain.step_s - fused.step_s, more, 0.15 * more);
  EXPECT_GT(plain.memory[0].activation_peak_bytes, 1.1 * double(fused.memory[0].activation_peak_bytes));
  json["layout"]["options"] = {{"attention_kernel", "torch"}, {"attention-backend", "unfused"}};
  EXPECT_EQ(predicted(json).layout.execution.attention, AttentionKernel::plain);
  EXPECT_TRUE(predicted(json).layout.execution.dropout) << "as its example has it";
  json["layout"]["options"]["attention_kernel"] = "fused";
  EXPECT_EQ(predicted(json).layout.execution.attention, AttentionKernel::unfused);
  // On two tensor ranks each has the logits whole.
  json["hardware"]["gpus"] = 4;
  json["layout"]["tp"] = 2;
  const double gathered = double(predicted(json).memory[1].activation_peak_bytes);
  json["framework"] = "nanotron";
  EXPECT_GT(gathered, double(predicted(json).memory[1].activation_peak_bytes) + 2048.0 * 25600.0 * 4.0);
}

// fms-fsdp's selective recompute is whole layers: as few as fit.
TEST(PredictRun, SomeWholeLayersAreAsFewAsFit) {
  Json json = small_pipeline("fms-fsdp (PyTorch FSDP)", 1);
  json["model"]["layers"] = 6;
  json["layout"]["recompute"] = "selective";
  const Layout small = predicted(json).layout;
  EXPECT_EQ(small.recompute, Recompute::none);
  json["layout"]["micro_batch"] = 16;
  const RunPrediction large = predicted(json);
  EXPECT_EQ(large.layout.recompute, Recompute::full);
  ASSERT_EQ(large.layout.recomputed_layers.size(), 1u);
  EXPECT_GT(large.layout.recomputed_layers[0], 0);
  EXPECT_LT(large.layout.recomputed_layers[0], large.layout.layers_per_stage[0]);
  EXPECT_TRUE(large.fits);
}

TEST(PredictRun, RecomputedModulesComeFromTheLayoutOrItsRecipe) {
  Json json = record();
  json["layout"]["recompute"] = "selective";
  const auto modules = [&] { return recompute_modules_of(predicted(json).layout.selective); };
  using Names = std::vector<std::string>;
  EXPECT_EQ(modules(), Names{"core_attn"});
  json["layout"]["options"] = {{"recompute-modules", "[layernorm moe_act]"}};
  EXPECT_EQ(modules(), (Names{"layernorm", "moe_act"}));
  json["recipe"] = {{"recompute_modules", {"mlp", "shared_experts"}}};
  EXPECT_EQ(modules(), Names{"mlp"}) << "what is no operator of ours counts for nothing";
  json["layout"]["recompute_modules"] = {"moe_act", "core_attn"};
  EXPECT_EQ(modules(), (Names{"core_attn", "moe_act"}));
  json["layout"]["recompute"] = "none";
  EXPECT_EQ(modules(), Names{"core_attn"});
  json["layout"]["recompute_modules"] = "moe_act";
  EXPECT_THROW(read_run_record(json, "/0"), UserError);
}

TEST(PredictRun, RunsThatFailedForMemoryAreToldFromOthers) {
  Json json = record();
  json["measured"] = {{"out_of_memory", true}};
  const RunRecord failed = read_run_record(json, "/0");
  EXPECT_TRUE(failed.out_of_memory);
  EXPECT_FALSE(failed.measured_s || failed.measured_gib);
  json["measured"]["out_of_memory"] = "yes";
  EXPECT_THROW(read_run_record(json, "/0"), UserError);
}

}  // namespace
}  // namespace mpt::planner
