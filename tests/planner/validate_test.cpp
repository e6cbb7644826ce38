// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
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
  json["model"]["name"] = "Qwen3-30B-A3B";
  json["notes"] = "";
  const RunRecord qwen = read_run_record(json, "/0");
  EXPECT_EQ(qwen.model.query_key_norm, QueryKeyNorm::per_head);
  EXPECT_EQ(qwen.filled, (std::vector<std::string>{"model: norms on queries and keys of qwen3-30b-a3b"}));
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

}  // namespace
}  // namespace mpt::planner
