// SPDX-License-Identifier: Apache-2.0

// Adapters that recipes of others ask for.

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/json.h"
#include "frameworks/readers/adapter_modules.h"
#include "frameworks/registry.h"
#include "models/zoo.h"

namespace mpt::frameworks {
namespace {

using A = AdapterTarget;
using Targets = std::vector<A>;

std::string refusal_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

AdapterMatch of_hugging_face(const char* model, const std::vector<std::string>& patterns,
                             bool fused = false) {
  return match_adapters(hugging_face_modules(models::load_model(model), fused), patterns);
}

TEST(AdapterModules, APatternIsALastPartOrStandsForAWholeName) {
  const char* name = "model.layers.12.self_attn.q_proj";
  for (const char* pattern : {"q_proj", "*q_proj", "*_proj", "*.self_attn.q_proj", "*.layers.12.*.q_proj",
                              "model.*.q_proj", "*", ".*q_proj"})
    EXPECT_TRUE(matches_module(pattern, name)) << pattern;
  for (const char* pattern :
       {"proj", "_proj", "*k_proj", "*.layers.2.*", "self_attn", "q_proj*x", "", "*(q|k)_proj"})
    EXPECT_FALSE(matches_module(pattern, name)) << pattern;
  EXPECT_FALSE(matches_module(std::string(2000, '*') + "x", std::string(2000, 'a'))) << "in time";
}

TEST(AdapterModules, LatentAttentionAndExpertsHaveNamesOfTheirOwn) {
  const Targets attention{A::qkv, A::output};
  EXPECT_EQ(of_hugging_face("deepseek-v3",
                            {"*q_a_proj", "*q_b_proj", "*kv_a_proj_with_mqa", "*kv_b_proj", "*o_proj"})
                .targets,
            attention);
  EXPECT_TRUE(of_hugging_face("deepseek-v3", {"*q_a_proj", "*q_b_proj", "*kv_a_proj_with_mqa", "*kv_b_proj"})
                  .partly.empty());
  EXPECT_EQ(of_hugging_face("deepseek-v3", {"*q_a_proj"}).partly, Targets{A::qkv});
  EXPECT_TRUE(of_hugging_face("deepseek-v3", {"q_proj"}).targets.empty());
  EXPECT_EQ(of_hugging_face("qwen3-30b-a3b", {"*"}).targets, (Targets{A::qkv, A::output, A::experts}));
  EXPECT_EQ(of_hugging_face("qwen3-30b-a3b", {"*_proj"}).targets, attention) << "experts are one module";
}

TEST(AdapterModules, ModelsMayJoinTheirProducts) {
  EXPECT_TRUE(of_hugging_face("llama3-8b", {"qkv_proj", "gate_up_proj"}).targets.empty());
  EXPECT_EQ(of_hugging_face("llama3-8b", {"qkv_proj", "gate_up_proj"}, true).targets,
            (Targets{A::qkv, A::up}));
}

TEST(AdapterModules, SomeLayersAreAPart) {
  const AdapterMatch some = of_hugging_face("llama3-8b", {"*.layers.2.*q_proj", "*.layers.2.*k_proj"});
  EXPECT_EQ(some.targets, Targets{A::qkv});
  EXPECT_EQ(some.partly, Targets{A::qkv});
}

AdapterMatch of_peft(const char* model, const std::vector<std::string>& names) {
  const Json spellings{{"model.language_model.", "model."}, {"shared_expert.", "shared_experts."}};
  return of_hugging_face(model, wildcards_of_peft(names, spellings));
}

// peft/tuners/tuners_utils.py, check_target_module_exists
TEST(AdapterModules, PeftTakesEndsOfNamesAndRegularExpressions) {
  const Targets all{A::qkv, A::output, A::up, A::down}, attention{A::qkv, A::output};
  EXPECT_EQ(of_peft("llama3-8b", {"self_attn.q_proj", "o_proj"}).targets, attention);
  EXPECT_TRUE(of_peft("llama3-8b", {"attn.q_proj"}).targets.empty()) << "a part of a name";
  const char* of_images =
      "model.language_model.layers.[\\d]+.(mlp|cross_attn|self_attn).(up|down|gate|q|k|v|o)_proj";
  EXPECT_EQ(of_peft("gemma3-4b", {of_images}).targets, all);
  EXPECT_TRUE(of_peft("gemma3-4b", {of_images}).partly.empty());
  EXPECT_EQ(of_peft("llama3-8b", {"model.layers.[\\d]+.(_checkpoint_wrapped_module.)?self_attn.(q|k|v)_proj"})
                .targets,
            Targets{A::qkv});
  const AdapterMatch some = of_peft(
      "qwen3.5-4b", {".*\\.layers\\.(3|7)\\.self_attn\\.(q|k|v|o)_proj|.*\\.mlp\\.(?:gate|up|down)_proj"});
  EXPECT_EQ(some.targets, all);
  EXPECT_EQ(some.partly, attention);
  EXPECT_EQ(of_peft("qwen1.5-moe-a2.7b", {"shared_expert.up_proj", "shared_expert.gate_proj"}).targets,
            Targets{A::up});
  EXPECT_TRUE(of_peft("llama3-8b", {std::string(40, '(') + "q_proj"}).targets.size() <= 1) << "open groups";
  std::string many;
  for (int i = 0; i < 30; ++i) many += "(a|b)";
  EXPECT_TRUE(wildcards_of_peft({many}, Json::object()).empty()) << "more than anybody asks for";
}

Imported bridge(const std::string& lines, const std::string& more = "") {
  const std::string file = testing::TempDir() + "/bridge_lora.py";
  write_file_atomically(file,
                        "config.model.num_layers = 2\nconfig.model.hidden_size = 64\n"
                        "config.model.num_attention_heads = 4\nconfig.model.ffn_hidden_size = 128\n"
                        "config.model.vocab_size = 256\nconfig.model.seq_length = 64\n" +
                            more + lines + "\n");
  return import_megatron_bridge(file);
}

TEST(BridgeAdapters, AreReadOverSeveralLinesAndByNames) {
  const auto of = [](const std::string& lines) { return bridge(lines).layout.training; };
  const Targets all{A::qkv, A::output, A::up, A::down};
  EXPECT_EQ(of("config.peft = None").adapter_rank, 0);
  EXPECT_EQ(of("config.peft = LoRA()").adapter_rank, 32);
  EXPECT_EQ(of("config.peft = LoRA()").adapter_targets, all);
  EXPECT_EQ(of("config.peft = \"lora\"").adapter_targets, all);
  EXPECT_EQ(of("config.peft = default_peft_config(\"lora\")").adapter_rank, 32);
  EXPECT_EQ(of("config.peft = default_peft_config(\"lora\", dim=8)").adapter_rank, 8);
  EXPECT_EQ(of("config.peft = default_peft_config(None)").adapter_rank, 0);
  const Training lines =
      of("config.peft = LoRA(\n    target_modules=[\"linear_qkv\"],\n    dim = 16,  # rank\n)");
  EXPECT_EQ(lines.adapter_rank, 16);
  EXPECT_EQ(lines.adapter_targets, Targets{A::qkv});
  EXPECT_EQ(of("rank = 64\nconfig.peft = LoRA(dim=rank)").adapter_rank, 64);
  EXPECT_EQ(
      of("cfg.peft = LoRA(dim=16)\ncfg.peft.dim = 8\ncfg.peft.target_modules = ['linear_proj']").adapter_rank,
      8);
  EXPECT_EQ(of("cfg.peft = LoRA()\ncfg.peft = LoRA(target_modules=[\"linear_fc2\"])").adapter_targets,
            Targets{A::down});
  EXPECT_EQ(of("cfg.peft = LoRA(target_modules=[], exclude_modules=[\"linear_proj\", \"linear_fc1\"])")
                .adapter_targets,
            (Targets{A::qkv, A::down}));
}

TEST(BridgeAdapters, ExpertsAreNamedLikeAnMlp) {
  const char* experts =
      "config.model.num_moe_experts = 8\nconfig.model.moe_router_topk = 2\n"
      "config.model.moe_ffn_hidden_size = 32\n";
  EXPECT_EQ(bridge("config.peft = LoRA()", experts).layout.training.adapter_targets,
            (Targets{A::qkv, A::output, A::experts}));
}

TEST(BridgeAdapters, WhatIsNotUnderstoodIsTold) {
  const auto notes = [](const std::string& lines) {
    std::string all;
    for (const std::string& note : bridge(lines).notes) all += note + "\n";
    return all;
  };
  EXPECT_NE(notes("cfg.peft = DoRA(dim=8)").find("peft DoRA: full training"), std::string::npos);
  for (const auto& [lines, key] : {std::pair{"cfg.peft = LoRA(dim=rank_of(model))", "peft.dim"},
                                   {"cfg.peft = LoRA(target_modules=names)", "peft.target_modules"}})
    EXPECT_NE(refusal_of([&, &lines = lines] { bridge(lines); }).find(key), std::string::npos) << lines;
  EXPECT_NE(notes("cfg.peft = LoRA(target_modules=['*.layers.0.*.linear_qkv'])").find("a part of qkv"),
            std::string::npos);
  EXPECT_NE(refusal_of([&] {
              bridge("cfg.peft = LoRA(target_modules=['linear_in_proj'])");
            }).find("linear_in_proj, which no linear layer"),
            std::string::npos);
}

TEST(BridgeAdapters, BytesThatAreNoTextAreNoMatter) {
  EXPECT_EQ(
      bridge("name = '\xfb'\ncfg.peft = LoRA(x='\xfb')\ncfg.model.x = '\xfb'").layout.training.adapter_rank,
      32);
  EXPECT_NE(refusal_of([] { bridge("cfg.peft = LoRA(dim='\xfb')"); }).find("peft.dim"), std::string::npos);
}

TEST(BridgeAdapters, FieldsMayBeNamesAndSums) {
  EXPECT_EQ(bridge("tp = 2\nconfig.model.tensor_model_parallel_size = tp * 2").layout.tensor, 4);
}

TEST(AutoModelAdapters, FollowTheModel) {
  const std::string file = testing::TempDir() + "/automodel_lora.yaml";
  const auto targets = [&](const char* model, const std::string& modules) {
    write_file_atomically(file,
                          std::string("step_scheduler:\n  global_batch_size: 32\ndataset:\n  seq_len: 64\n"
                                      "model:\n  pretrained_model_name_or_path: ") +
                              model + "\npeft:\n  " + modules + "\n");
    return import_automodel(file).layout.training.adapter_targets;
  };
  EXPECT_EQ(targets("deepseek-ai/DeepSeek-V3", "target_modules: ['*q_a_proj', '*o_proj']"),
            (Targets{A::qkv, A::output}));
  EXPECT_EQ(targets("deepseek-ai/DeepSeek-V4-Flash", "target_modules: ['*wq_a', '*wq_b', '*wkv', '*wo_b']"),
            (Targets{A::qkv, A::output}));
  EXPECT_EQ(targets("deepseek-ai/DeepSeek-V4-Flash", "target_modules: ['*q_a_proj', '*o_b_proj']"),
            (Targets{A::qkv, A::output}));
  EXPECT_EQ(targets("Qwen/Qwen3-30B-A3B", "target_modules: ['*']"), (Targets{A::qkv, A::output, A::experts}));
  EXPECT_EQ(targets("Qwen/Qwen3-30B-A3B", "match_all_linear: true"), (Targets{A::qkv, A::output}));
  EXPECT_EQ(targets("Qwen/Qwen3-8B", "target_modules: [qkv_proj, gate_up_proj]"), (Targets{A::qkv, A::up}));
  EXPECT_NE(
      refusal_of([&] { targets("Qwen/Qwen3-8B", "exclude_modules: ['*']"); }).find("peft.exclude_modules"),
      std::string::npos);
}

}  // namespace
}  // namespace mpt::frameworks
