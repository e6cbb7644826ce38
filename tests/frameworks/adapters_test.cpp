// SPDX-License-Identifier: Apache-2.0

// Adapters that recipes of others ask for.

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/json.h"
#include "frameworks/readers/adapter_modules.h"
#include "frameworks/registry.h"
#include "models/zoo.h"
#include "tests/frameworks/recipe_files.h"
#include "tests/support/make_plan.h"

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
  EXPECT_EQ(of("config.peft = None")->adapter_rank, 0);
  EXPECT_EQ(of("config.peft = LoRA()")->adapter_rank, 32);
  EXPECT_EQ(of("config.peft = LoRA()")->adapter_targets, all);
  EXPECT_EQ(of("config.peft = \"lora\"")->adapter_targets, all);
  EXPECT_EQ(of("config.peft = default_peft_config(\"lora\")")->adapter_rank, 32);
  EXPECT_EQ(of("config.peft = default_peft_config(\"lora\", dim=8)")->adapter_rank, 8);
  EXPECT_EQ(of("config.peft = default_peft_config(None)")->adapter_rank, 0);
  const Training lines =
      of("config.peft = LoRA(\n    target_modules=[\"linear_qkv\"],\n    dim = 16,  # rank\n)");
  EXPECT_EQ(lines.adapter_rank, 16);
  EXPECT_EQ(lines.adapter_targets, Targets{A::qkv});
  EXPECT_EQ(of("rank = 64\nconfig.peft = LoRA(dim=rank)")->adapter_rank, 64);
  EXPECT_EQ(of("cfg.peft = LoRA(dim=16)\ncfg.peft.dim = 8\ncfg.peft.target_modules = ['linear_proj']")
                ->adapter_rank,
            8);
  EXPECT_EQ(of("cfg.peft = LoRA()\ncfg.peft = LoRA(target_modules=[\"linear_fc2\"])")->adapter_targets,
            Targets{A::down});
  EXPECT_EQ(of("cfg.peft = LoRA(target_modules=[], exclude_modules=[\"linear_proj\", \"linear_fc1\"])")
                ->adapter_targets,
            (Targets{A::qkv, A::down}));
}

TEST(BridgeAdapters, ExpertsAreNamedLikeAnMlp) {
  const char* experts =
      "config.model.num_moe_experts = 8\nconfig.model.moe_router_topk = 2\n"
      "config.model.moe_ffn_hidden_size = 32\n";
  EXPECT_EQ(bridge("config.peft = LoRA()", experts).layout.training->adapter_targets,
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
      bridge("name = '\xfb'\ncfg.peft = LoRA(x='\xfb')\ncfg.model.x = '\xfb'").layout.training->adapter_rank,
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
    return import_automodel(file).layout.training->adapter_targets;
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

// The names in the recipe for LLaMA-Factory.
std::string exported_names(const char* model, const Targets& targets) {
  Plan plan = test::make_plan({models::load_model(model), {16, 16}});
  plan.layout.training.edit().adapter_rank = 16;
  plan.layout.training.edit().adapter_targets = targets;
  plan.layout.execution = load_framework("transformers-ddp", "test");
  for (const ExportedFile& file : export_llamafactory(plan).files) {
    const std::string key = "lora_target: \"";
    const size_t at = file.text.find(key);
    if (at != std::string::npos)
      return file.text.substr(at + key.size(), file.text.find('"', at + key.size()) - at - key.size());
  }
  return "";
}

TEST(TunerAdapters, AreNamedByTheModelsType) {
  const Targets all{A::qkv, A::output, A::up, A::down};
  EXPECT_EQ(exported_names("llama3-8b", all), "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj");
  EXPECT_EQ(exported_names("phi3-mini-128k", all), "qkv_proj,o_proj,gate_up_proj,down_proj");
  EXPECT_EQ(exported_names("glm-4.6v-flash", all), "q_proj,k_proj,v_proj,o_proj,gate_up_proj,down_proj");
  EXPECT_EQ(exported_names("gpt2-124m", all), "c_attn,c_proj,c_fc");
  EXPECT_EQ(exported_names("gpt2-124m", {A::output, A::up}), "attn.c_proj,c_fc")
      << "the MLP has a c_proj, too";
  EXPECT_EQ(exported_names("gpt2-124m", {A::qkv, A::down}), "c_attn,mlp.c_proj");
}

// Reentrant recomputation leaves the balance loss of experts without a gradient.
TEST(TunerExports, RecomputeWithUseReentrantOnZeroThreeAloneAndSaySo) {
  const auto exported = [](const char* model, int64_t zero, Exported (*write)(const Plan&)) {
    Plan plan = test::make_plan({models::load_model(model), {16, 16}});
    plan.layout.data = 2;
    plan.layout.zero = zero;
    plan.layout.training.edit().adapter_rank = 16;
    plan.layout.recompute = Recompute::full;
    plan.layout.execution = load_framework("transformers-deepspeed", "test");
    for (const ExportedFile& file : write(plan).files)
      if (file.name == "recipe.yaml") return file.text;
    return std::string();
  };
  const char* note = "the balance loss of the experts is in the loss and in no gradient";
  for (const int64_t zero : {2, 3}) {
    const std::string factory = exported("mixtral-8x7b", zero, export_llamafactory);
    EXPECT_EQ(factory.find("use_reentrant_gc: false") != std::string::npos, zero == 2);
    EXPECT_EQ(factory.find(note) != std::string::npos, zero == 3);
    EXPECT_EQ(exported("olmoe-1b-7b", zero, export_axolotl).find(note) != std::string::npos, zero == 3);
    EXPECT_EQ(exported("llama3-8b", zero, export_axolotl).find(note), std::string::npos);
  }
}

// The recipe for axolotl of Llama 3 8B on one GPU with FSDP2.
std::string recipe_for_one_gpu(int64_t zero, int64_t adapter_rank, const std::vector<std::string>& changes) {
  Plan plan = test::make_plan({models::load_model("llama3-8b"), {16, 16}});
  plan.layout.precision = Precision::bf16;
  plan.layout.zero = zero;
  plan.layout.offload_optimizer = zero == 3;
  plan.layout.training.edit().adapter_rank = adapter_rank;
  plan.layout.execution = with_changes(load_framework("transformers-fsdp", "test"), changes, "test");
  const Exported exported = export_axolotl(plan);
  std::string text = joined(exported.warnings, "");
  for (const ExportedFile& file : exported.files) text += file.text;
  return text;
}

// Qwen3.5's and Gemma 4's classes list layers of their towers, which the text alone lacks.
TEST(TunerExports, LayersToWrapAreNamedWhereTheModelsListHasOthers) {
  for (const auto& [model, layers] : {std::pair("qwen3.5-0.8b", "Qwen3_5DecoderLayer"),
                                      {"qwen3.5-35b-a3b", "Qwen3_5MoeDecoderLayer"},
                                      {"gemma4-e2b", "Gemma4TextDecoderLayer"},
                                      {"llama3-8b", ""},
                                      {"gemma3-1b", ""}}) {
    Plan plan = test::make_plan({models::load_model(model), {16, 16}});
    plan.layout.data = 2;
    plan.layout.zero = 3;
    plan.layout.execution = load_framework("transformers-fsdp", "test");
    const std::string key = "transformer_layer_cls_to_wrap: ";
    for (const Exported& exported : {export_axolotl(plan), export_transformers_fsdp(plan)}) {
      std::string text;
      for (const ExportedFile& file : exported.files) text += file.text;
      EXPECT_EQ(text.find(key) != std::string::npos, *layers != 0) << model;
      EXPECT_NE(text.find(*layers != 0 ? key + layers : ""), std::string::npos) << model;
    }
  }
}

TEST(TunerExports, OffloadFromOneGpuOfAxolotl) {
  const char* block = "offload_params: true";
  EXPECT_NE(recipe_for_one_gpu(3, 16, {}).find(block), std::string::npos);
  EXPECT_EQ(recipe_for_one_gpu(0, 16, {}).find("fsdp_config"), std::string::npos);
}

// findings/qlora_holds_experts_in_fp32.sh
TEST(TunerExports, AxolotlQuantisesExpertsOrSharesThemOut) {
  const auto exported = [](int64_t zero, bool narrows, const char* framework) {
    Plan plan = test::make_plan({models::load_model("qwen3-30b-a3b"), {16, 16}});
    plan.layout.data = 2;
    plan.layout.zero = zero;
    plan.layout.training.edit().adapter_rank = 16;
    plan.layout.training.edit().frozen_format = FrozenFormat::nf4;
    plan.layout.execution = load_framework(framework, "test");
    plan.layout.execution.edit().states.narrows_experts = narrows;
    const Exported exported = export_axolotl(plan);
    std::string text = joined(exported.warnings, "");
    for (const ExportedFile& file : exported.files) text += file.text;
    return text;
  };
  const char *widens = "makes experts fp32", *quantises = "quantize_moe_experts: true";
  EXPECT_NE(exported(0, false, "transformers-ddp").find(widens), std::string::npos);
  EXPECT_NE(exported(2, false, "transformers-deepspeed").find(widens), std::string::npos);
  EXPECT_EQ(exported(3, false, "transformers-deepspeed").find(widens), std::string::npos);
  EXPECT_EQ(exported(3, false, "transformers-fsdp").find(widens), std::string::npos);
  EXPECT_EQ(exported(0, true, "transformers-ddp").find(widens), std::string::npos);
  EXPECT_NE(exported(0, true, "transformers-ddp").find(quantises), std::string::npos);
}

TEST(TunerExports, AxolotlsTypesOfStatesAreAskedFor) {
  const char* refusal = "plan again with --execution weight_bytes=2";
  EXPECT_NE(recipe_for_one_gpu(3, 0, {}).find(refusal), std::string::npos);
  EXPECT_EQ(recipe_for_one_gpu(3, 16, {}).find(refusal), std::string::npos);
  EXPECT_EQ(
      recipe_for_one_gpu(3, 0, {"weight_bytes=2", "gradient_bytes=2", "optimizer_bytes=4"}).find(refusal),
      std::string::npos);
}

Imported tuned(const std::string& name, const std::string& model, const std::string& recipe) {
  return import_transformers(recipe_file(
      name,
      "base_model: " + model + "\nsequence_len: 2048\nadapter: lora\nlora_r: 16\nbf16: true\n" + recipe));
}

TEST(TunerAdapters, AreReadByTheModelsType) {
  const auto targets = [](const char* model, const char* names) {
    return tuned("typed.yaml", model, "lora_target_modules: [" + std::string(names) + "]\n")
        .layout.training->adapter_targets;
  };
  EXPECT_EQ(targets("openai-community/gpt2", "c_attn"), Targets{A::qkv});
  EXPECT_EQ(targets("openai-community/gpt2", "c_attn, attn.c_proj"), (Targets{A::qkv, A::output}));
  EXPECT_EQ(targets("openai-community/gpt2", "c_proj"), (Targets{A::output, A::down}));
  EXPECT_EQ(targets("EleutherAI/pythia-1.4b", "query_key_value, dense"), (Targets{A::qkv, A::output}));
  EXPECT_EQ(targets("nobody/knows", "query_key_value"), Targets{A::qkv});
}

// peft 0.21.2, peft/utils/transformers_weight_conversion.py, _convert_peft_config_moe
TEST(TunerAdapters, MoveFromAnMlpToExperts) {
  const Targets attention_and_experts{A::qkv, A::output, A::experts};
  const Imported linear = tuned("linear.yaml", "Qwen/Qwen3-30B-A3B", "lora_target_linear: true\n");
  EXPECT_EQ(linear.layout.training->adapter_targets, attention_and_experts);
  EXPECT_EQ(linear.layout.training->expert_rank_factor, 2);
  EXPECT_TRUE(has_note(linear, "router"));
  const char* const deepseek = "deepseek-ai/DeepSeek-V2-Lite";
  const Imported moved =
      tuned("mlp.yaml", deepseek, "lora_target_modules: [o_proj, gate_proj, up_proj, down_proj]\n");
  EXPECT_EQ(moved.layout.training->adapter_targets, (Targets{A::output, A::experts}));
  EXPECT_EQ(moved.layout.training->expert_rank_factor, 2);
  EXPECT_FALSE(has_note(moved, "router"));
  const Imported down = tuned("down.yaml", deepseek, "lora_target_modules: [o_proj, down_proj]\n");
  EXPECT_EQ(down.layout.training->adapter_targets, (Targets{A::output, A::experts}));
  EXPECT_EQ(down.layout.training->expert_rank_factor, 1);
  EXPECT_TRUE(has_note(down, "a part of experts"));
  const Imported gate = tuned("gate.yaml", deepseek, "lora_target_modules: [o_proj, gate_proj]\n");
  EXPECT_TRUE(gate.refused && gate.refused->found.find("one of gate_proj") != std::string::npos);
  const Imported mixtral =
      tuned("mixtral.yaml", "mistralai/Mixtral-8x7B-v0.1", "lora_target_modules: [q_proj, w1, w2, w3]\n");
  EXPECT_EQ(mixtral.layout.training->adapter_targets, (Targets{A::qkv, A::experts}));
  EXPECT_EQ(tuned("dense.yaml", "Qwen/Qwen3-8B", "lora_target_linear: true\n")
                .layout.training->adapter_targets.size(),
            4u);
}

TEST(TunerAdapters, OfTrlMoveToo) {
  const Imported in = import_megatron_core(recipe_file(
      "trl_moe.sh",
      "trl sft --model_name_or_path Qwen/Qwen3-30B-A3B --max_length 2048 --use_peft --lora_target_modules "
      "all-linear --per_device_train_batch_size 1 --num_processes 8\n"));
  EXPECT_EQ(in.layout.training->adapter_targets, (Targets{A::qkv, A::output, A::experts}));
  EXPECT_EQ(in.layout.training->expert_rank_factor, 2);
}

TEST(TunerAdapters, OfLlamaFactoryStayWithItsOlderPeft) {
  const Imported in = import_transformers(recipe_file(
      "factory.yaml",
      "model_name_or_path: deepseek-ai/DeepSeek-V2-Lite\ncutoff_len: 2048\nstage: sft\nfinetuning_type: "
      "lora\nlora_rank: 16\nlora_target: gate_proj,up_proj,down_proj\nbf16: true\n"));
  EXPECT_EQ(in.layout.training->adapter_targets, (Targets{A::up, A::down}));
  EXPECT_EQ(in.layout.training->expert_rank_factor, 1);
}

}  // namespace
}  // namespace mpt::frameworks
