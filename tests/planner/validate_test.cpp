// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/error.h"
#include "core/recompute_modules.h"
#include "models/layer_program.h"
#include "planner/validate/predict_run.h"
#include "planner/validate/run_record.h"
#include "tests/planner/run_records.h"

namespace mpt::planner {
namespace {

TEST(RunRecord, IsReadAndPredictedNearItsMeasurement) {
  const RunRecord run = read_run_record(record(), "/0");
  EXPECT_EQ(run.model.layers, 48);
  EXPECT_EQ(run.measured_s, 1.1);
  EXPECT_FALSE(run.measured_gib);
  const RunPrediction p = predict_run(run);
  EXPECT_NEAR(p.step_s / 1.1, 1.0, 0.12);
  EXPECT_EQ(p.layout.tensor, 8);
  EXPECT_TRUE(p.layout.sequence_parallel);
  EXPECT_EQ(p.layout.recompute, Recompute::selective);
  EXPECT_EQ(p.layout.execution.framework, "megatron-lm") << "fp16 without flash attention";
  EXPECT_TRUE(p.filled.empty());
  EXPECT_TRUE(p.fits);
}

TEST(RunRecord, FieldsThatWereNotPublishedAreFilledWithTheFastestThatFits) {
  Json json = record();
  json["layout"]["recompute"] = nullptr;
  json["layout"]["micro_batch"] = nullptr;
  const RunPrediction p = predicted(json);
  EXPECT_EQ(p.filled.size(), 2u);
  EXPECT_TRUE(p.fits);
  for (const char* recompute : {"none", "selective", "full"}) {
    for (const int micro_batch : {1, 2, 4}) {
      json["layout"]["recompute"] = recompute;
      json["layout"]["micro_batch"] = micro_batch;
      const RunPrediction fixed = predicted(json);
      if (!fixed.fits) continue;
      EXPECT_LE(p.step_s, fixed.step_s * (1 + 1e-9)) << recompute << " " << micro_batch;
    }
  }
}

// What the form of a record has no fields for, and the source's model has.
TEST(RunRecord, WhatTheNameOfAModelSaysIsFilledIn) {
  Json json = record();
  json["model"]["moe"] = parse_json(R"({"experts": 256, "topk": 8, "expert_ffn": 2048})", "moe");
  EXPECT_EQ(read_run_record(json, "/0").model.moe->expert_groups, 1);
  json["model"]["name"] = "DeepSeek-V3";
  const RunRecord deepseek = read_run_record(json, "/0");
  EXPECT_EQ(deepseek.model.moe->expert_groups, 8);
  EXPECT_EQ(deepseek.model.moe->groups_per_token, 4);
  EXPECT_EQ(deepseek.filled, (std::vector<std::string>{"model.moe.groups = 4 of 8"}));
  json["notes"] = "Fake balanced expert gate, mock data.";
  const RunRecord fake = read_run_record(json, "/0");
  EXPECT_EQ(fake.model.moe->expert_groups, 32) << "the eight experts of a token stand side by side";
  EXPECT_EQ(fake.model.moe->groups_per_token, 1);
  EXPECT_EQ(fake.filled, (std::vector<std::string>{"model.moe.groups = 1 of 32"}));
  json["model"]["name"] = "gpt-oss-120b";
  const ModelSpec gpt_oss = read_run_record(json, "/0").model;
  EXPECT_EQ(gpt_oss.sliding_window, 128);
  EXPECT_EQ(gpt_oss.sliding_window_interval, 2);
  EXPECT_TRUE(gpt_oss.attention_sinks && gpt_oss.mlp_bias && gpt_oss.qkv_bias);
  EXPECT_TRUE(gpt_oss.activation_limit == 7.0 && gpt_oss.rotary_scaling);
  EXPECT_FALSE(deepseek.model.sliding_window || deepseek.model.attention_sinks);
}

TEST(RunRecord, AVocabularyIsPaddedAsTheRecordSaysOrAsItsFrameworkDoes) {
  Json json = record();
  json["model"]["vocab"] = 50257;
  const RunPrediction megatron = predicted(json);
  EXPECT_EQ(megatron.layout.execution.vocabulary_multiple, 128);
  EXPECT_EQ(models::vocabulary_share(read_run_record(json, "/0").model, megatron.layout), 51200 / 8);
  json["model"]["vocab_pad_multiple"] = 8;
  const RunPrediction stated = predicted(json);
  EXPECT_EQ(models::vocabulary_share(read_run_record(json, "/0").model, stated.layout), 50264 / 8);
}

TEST(RunRecord, TheNameOfAShardingIsItsZeroStage) {
  Json json = record();
  json["layout"]["zero_stage"] = nullptr;
  for (const auto& [name, stage] : {std::pair{"FSDP2", 3}, {"ZeRO-2", 2}, {"distributed optimizer", 1}}) {
    json["layout"]["sharding"] = name;
    EXPECT_EQ(read_run_record(json, "/0").zero, stage) << name;
  }
  json["layout"]["sharding"] = "data parallel";
  EXPECT_FALSE(read_run_record(json, "/0").zero);
  json["layout"]["zero_stage"] = 1;
  json["layout"]["sharding"] = "FSDP2";
  EXPECT_EQ(read_run_record(json, "/0").zero, 1) << "a number says more";
}

Json with_field(Json json, const char* pointer, const Json& value) {
  json[Json::json_pointer(pointer)] = value;
  return json;
}

// 70 billion parameters shared out over 64 ranks: their activations alone are too many for one of them.
Json fully_sharded(const char* gpu) {
  Json json = record();
  json["framework"] = "Megatron-Bridge / Megatron-Core";
  for (const auto& [field, value] : {std::pair{"layers", 80},
                                     {"hidden", 8192},
                                     {"ffn_hidden", 28672},
                                     {"kv_heads", 8},
                                     {"vocab", 128256},
                                     {"seq_len", 8192}})
    json["model"][field] = value;
  json["model"]["gated_mlp"] = true;
  json["model"]["tied_embeddings"] = false;
  json["hardware"]["gpu"] = gpu;
  json["hardware"]["gpus"] = json["layout"]["dp"] = 64;
  json["layout"]["tp"] = 1;
  json["layout"]["sequence_parallel"] = false;
  json["layout"]["zero_stage"] = 3;
  json["layout"]["precision"] = "bf16";
  json["layout"]["micro_batch"] = 2;
  json["layout"]["global_batch"] = 128;
  json["layout"]["recompute"] = nullptr;
  return json;
}

TEST(RunRecord, RecomputeThatWasNotPublishedIsTheLeastThatFits) {
  const Json json = fully_sharded("h200-sxm-141gb");
  const RunPrediction p = predicted(json);
  ASSERT_TRUE(p.fits);
  ASSERT_EQ(p.layout.recomputed_layers.size(), 1u);
  const int64_t layers = p.layout.recomputed_layers.front();
  EXPECT_TRUE(layers > 1 && layers < 80) << layers;
  const Json full = with_field(json, "/layout/recompute", "full");
  const auto with = [&](int64_t n) {
    return predicted(with_field(full, "/layout/recompute_layers_per_stage", n));
  };
  EXPECT_EQ(with(layers).step_s, p.step_s);
  EXPECT_FALSE(with(layers - 1).fits);
  EXPECT_LT(p.step_s, predicted(full).step_s);
}

TEST(PredictRun, RecipesSayWhatRunsBesideTheExchangeWithExperts) {
  Json json = fully_sharded("h100-sxm-80gb");
  json["model"]["moe"] = {{"experts", 8}, {"topk", 2}, {"expert_ffn", 4096}};
  json["model"]["layers"] = 8;
  json["layout"]["ep"] = 8;
  json["layout"]["recompute"] = "none";
  const auto with = [&](const char* field, Json value) {
    return predicted(with_field(json, "/recipe", {{field, std::move(value)}}));
  };
  const RunPrediction alone = with("moe_a2a_overlap", false);
  EXPECT_FALSE(alone.layout.overlap_exchange);
  for (const auto& [field, value] : {std::pair<const char*, Json>{"moe_a2a_overlap", true},
                                     {"model.moe_a2a_overlap", "True"},
                                     {"comm_overlap", "overlap_moe_expert_parallel_comm=True,"},
                                     {"helpers", {"_enable_hybridep_full_iteration_mxfp8"}}}) {
    const RunPrediction beside = with(field, value);
    EXPECT_TRUE(beside.layout.overlap_exchange) << field;
    EXPECT_LT(beside.step_s, alone.step_s) << field;
  }
  EXPECT_TRUE(with("cuda_graph_impl", "full_iteration").layout.execution.graphs);
  const RunPrediction once = predicted(with_field(json, "/layout/overlap", "DeepEP dispatcher"));
  EXPECT_TRUE(once.layout.execution.deduplicates_dispatch);
  EXPECT_LT(once.step_s, alone.step_s);
}

TEST(PredictRun, ActivationsWaitInTheHostsMemory) {
  const Json none = with_field(fully_sharded("gb300"), "/layout/recompute", "none");
  const auto offloading = [&](int64_t layers) {
    return predicted(
        with_field(none, "/recipe", {{"model.cpu_offloading_num_layers", std::to_string(layers)}}));
  };
  const RunPrediction all_here = predicted(none);
  EXPECT_FALSE(all_here.fits);
  const double layer = all_here.peak_gib - offloading(1).peak_gib;
  EXPECT_GT(layer, 1.0);
  EXPECT_NEAR(offloading(40).peak_gib, all_here.peak_gib - 40 * layer, 1e-9);
  EXPECT_NEAR(offloading(500).peak_gib, all_here.peak_gib - 78 * layer, 1e-9) << "two layers stay";
  EXPECT_TRUE(offloading(40).fits);
  EXPECT_EQ(offloading(40).step_s, all_here.step_s);
  // Where nothing was published, beside Grace as many as it takes; elsewhere layers recompute.
  const RunPrediction grace = predicted(fully_sharded("gb300"));
  EXPECT_TRUE(grace.fits);
  EXPECT_EQ(grace.layout.recompute, Recompute::none);
  EXPECT_EQ(grace.step_s, all_here.step_s);
  const auto needed = int64_t(std::llround((all_here.peak_gib - grace.peak_gib) / layer));
  EXPECT_FALSE(offloading(needed - 1).fits);
  EXPECT_EQ(predicted(fully_sharded("b200-sxm-180gb")).layout.recompute, Recompute::full);
}

TEST(PredictRun, ApexKeepsTheLowerHalfOfTheMasterWeights) {
  Json json = record();
  json["framework"] = "NeMo / Megatron-Core";
  json["layout"]["precision"] = "bf16";
  const auto optimizer_bytes = [&] { return predicted(json).memory.front().optimizer_bytes; };
  const int64_t whole = optimizer_bytes();
  json["source"] = {{"commit_or_date", "35a9aec 2025-06-09 (tag v24.11.1)"}};
  EXPECT_NEAR(double(optimizer_bytes()) / double(whole), 10.0 / 12.0, 1e-6);
}

TEST(RunRecord, ATimeMayFollowFromARate) {
  Json json = record();
  json["measured"] = {{"tokens_per_s_per_gpu", 931.0}};
  EXPECT_NEAR(*read_run_record(json, "/0").measured_s, 4.0 * 2048 / (931.0 * 8), 1e-9);
  json["measured"] = Json::object();
  EXPECT_FALSE(read_run_record(json, "/0").measured_s);
}

TEST(RunRecord, WrongFieldsAreUserErrorsThatNameThem) {
  const std::pair<const char*, Json> wrong[] = {
      {"/model/layers", "many"},   {"/model/layers", -1},          {"/model/hidden", 1e300},
      {"/hardware/gpu", "abacus"}, {"/hardware/gpus", nullptr},    {"/layout/global_batch", 0},
      {"/layout/tp", 3.5},         {"/layout/recompute", 7},       {"/model", nullptr},
      {"/measured", "none"},       {"/layout/global_batch", 1e99}, {"/model/kv_heads", 48},
      {"/layout/dp", 99},          {"/model/heads", 63},           {"/layout/pp", 100000},
  };
  for (const auto& [pointer, value] : wrong) {
    Json json = record();
    json[Json::json_pointer(pointer)] = value;
    try {
      predicted(json);
      ADD_FAILURE() << pointer << " = " << value.dump() << " passed";
    } catch (const UserError& error) {
      EXPECT_GT(std::string(error.what()).size(), 10u);
    }
  }
  for (const char* text : {"null", "[]", "3", "{}", "\"x\""})
    EXPECT_THROW(read_run_record(parse_json(text, "t"), "/0"), UserError) << text;
}

// Whatever a record holds, it is predicted or refused, never more than a few seconds and never a crash.
TEST(RunRecord, RandomChangesArePredictedOrRefused) {
  std::mt19937 random(7);
  const Json values[] = {
      nullptr, -1, 0, 1, 2, 3, 8, 96, 1000003, 1e18, 0.5, "text", true, Json::array(), Json::object()};
  int refused = 0, fine = 0;
  for (int i = 0; i < 300; ++i) {
    Json json = i % 2 == 0 ? record() : two_stages(1, 2, 1 + int(random() % 626), int(random() % 300));
    for (int changes = 1 + i % 3; changes > 0; --changes) {
      const char* sections[] = {"model", "hardware", "layout", "measured"};
      Json& section = i % 4 == 1 ? json["layout"]["stages"][random() % 2] : json[sections[random() % 4]];
      auto field = section.begin();
      std::advance(field, long(random() % section.size()));
      field.value() = values[random() % std::size(values)];
    }
    try {
      const RunPrediction p = predicted(json);
      EXPECT_TRUE(std::isfinite(p.step_s) && p.step_s > 0.0 && p.peak_gib > 0.0);
      ++fine;
    } catch (const UserError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 20);
  EXPECT_GT(fine, 20);
}

TEST(PredictRun, PhysicsPointsTheRightWay) {
  const double base = predicted(record()).step_s;
  Json json = record();
  json["layout"]["recompute"] = "full";
  EXPECT_GT(predicted(json).step_s, 1.15 * base) << "a third more compute";
  json = record();
  json["hardware"]["gpu"] = "h100-sxm-80gb";
  EXPECT_LT(predicted(json).step_s, 0.65 * base);
  json = record();
  json["layout"]["tp"] = 4;
  json["layout"]["dp"] = 2;
  json["layout"]["micro_batch"] = 2;
  EXPECT_GT(predicted(json).peak_gib, predicted(record()).peak_gib) << "half the model on each GPU";
}

// Qi et al. 2023 (arXiv:2401.10241), tables 3 and 4: 6.2B parameters, 8 stages, 3 sequences of 1,024 tokens a
// micro-batch; 39, 42 and 70 GB.
TEST(PredictRun, PendingWeightGradientsFillZeroBubblesLimit) {
  Json json = small_pipeline("Megatron-LM fork (sail-sg zero-bubble)", 8);
  for (const auto& [field, value] : {std::pair{"layers", 30},
                                     {"hidden", 4096},
                                     {"ffn_hidden", 16384},
                                     {"heads", 32},
                                     {"kv_heads", 32},
                                     {"seq_len", 1024}})
    json["model"][field] = value;
  json["layout"]["first_last_stage_one_layer_less"] = true;
  json["layout"]["micro_batch"] = 3;
  json["layout"]["global_batch"] = 72;
  for (const auto& [schedule, gib] : {std::pair{"1f1b", 39.0}, {"zb-1p", 42.0}, {"zb-2p", 70.0}}) {
    json["layout"]["schedule"] = schedule;
    EXPECT_NEAR(predicted(json).peak_gib / gib, 1.0, 0.04) << schedule;
  }
  json["layout"]["global_batch"] = 6;
  EXPECT_NEAR(predicted(json).peak_gib / 21.0, 1.0, 0.04)
      << "no more is pending than there are micro-batches";
}

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
  EXPECT_EQ(shifted.layout.execution.framework, "transformers");
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
  const RunPrediction wide = predicted(json);
  EXPECT_EQ(narrow.layout.execution.framework, wide.layout.execution.framework);
  EXPECT_LT(narrow.peak_gib, wide.peak_gib);
  EXPECT_EQ(narrow.step_s, wide.step_s);
}

TEST(PredictRun, PaddleHasTheAttentionOfItsRelease) {
  Json json = small_pipeline("PaddlePaddle 2.5.1 / PaddleNLP", 2);
  EXPECT_EQ(predicted(json).layout.execution.attention, AttentionKernel::flash1);
  json["framework"] = "PaddleNLP (PaddlePaddle)";
  EXPECT_EQ(predicted(json).layout.execution.attention, AttentionKernel::flash2);
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
  const auto modules = [&] { return recompute_modules_of(predicted(json).layout.execution); };
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
