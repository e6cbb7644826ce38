// SPDX-License-Identifier: Apache-2.0

// Models that frameworks train, and the verdicts on those that they do not.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "frameworks/framework.h"
#include "frameworks/supports/supports.h"
#include "models/zoo.h"

namespace mpt::frameworks {
namespace {

ModelVerdict verdict(const char* framework, const ModelSpec& model) {
  return verdict_on(*find_framework(framework), trained_by(*find_framework(framework), model));
}

VerdictKind verdict(const char* framework, const char* model) {
  return verdict(framework, models::load_model(model)).verdict;
}

// Models of the classes of transformers run where these are what trains; elsewhere the missing part is named.
TEST(SupportedModels, PartsThatFewFrameworksHaveAreNamed) {
  const auto model_of = [](const std::string& file) {
    return models::load_model(std::string(MPT_SOURCE_DIR) + "/tests/models/configs/" + file + ".json");
  };
  const auto lacks = [&](const char* framework, const std::string& file) {
    return verdict_on(*find_framework(framework), model_of(file)).reason;
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(lacks("megatron-core", "Qwen--Qwen3.5-27B"), "gated delta mixers"))
      << lacks("megatron-core", "Qwen--Qwen3.5-27B");
  EXPECT_TRUE(has(lacks("mpt", "deepseek-ai--DeepSeek-V3.2"), "sparse attention"))
      << lacks("mpt", "deepseek-ai--DeepSeek-V3.2");
  EXPECT_EQ(lacks("mpt", "deepseek-ai--DeepSeek-V3"), "");
  EXPECT_EQ(lacks("megatron-core", "openai--gpt-oss-20b"), "") << "layers differ in their windows alone";
  EXPECT_TRUE(has(lacks("mpt", "meta-llama--Llama-4-Maverick-17B-128E-Instruct"), "attention within chunks"));
  EXPECT_TRUE(has(lacks("mpt", "XiaomiMiMo--MiMo-V2-Flash"), "values of another size than keys"));
  EXPECT_TRUE(has(lacks("mpt", "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16"), "mamba2"))
      << lacks("mpt", "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16");
  EXPECT_TRUE(has(lacks("deepspeed", "nvidia--Llama-3_3-Nemotron-Super-49B-v1"), "the type nemotron-nas"));
  const ModelSpec hybrid = model_of("nvidia--Nemotron-H-56B-Base-8K");
  for (const char* name : {"mpt", "torchtitan"}) {
    const auto rejection = supports_model(*find_framework(name), hybrid, Precision::bf16);
    ASSERT_TRUE(rejection) << name;
    EXPECT_NE(rejection->reason.find(", which " + hybrid.name + " has"), std::string::npos)
        << rejection->reason;
  }
  for (const char* name : {"pytorch", "megatron-core", "megatron-bridge"}) {
    EXPECT_EQ(verdict(name, hybrid).verdict, VerdictKind::not_written) << name;
    EXPECT_FALSE(supports_model(*find_framework(name), hybrid, Precision::bf16)) << name;
  }
  EXPECT_FALSE(supports_model(*find_framework("transformers-fsdp"), hybrid, Precision::bf16));
}

// Its scripts do not hand --rope-scaling-factor on to the model.
TEST(SupportedModels, MegatronLmScalesLlama3ByEightAlone) {
  const Framework& megatron = *find_framework("megatron-core");
  const Framework& bridge = *find_framework("megatron-bridge");
  EXPECT_FALSE(lacks_model(megatron, models::load_model("llama3-8b")));
  EXPECT_TRUE(lacks_model(megatron, models::load_model("llama3.2-1b")));
  EXPECT_FALSE(lacks_model(bridge, models::load_model("llama3.2-1b")));
}

TEST(SupportedModels, MptRunTrainsGatedDeltaNetButNoGatesOnLatentAttention) {
  ModelSpec model = models::load_model("qwen3.5-27b");
  model.next_token_layers = 0;
  EXPECT_FALSE(lacks_model(own_runtime(), model));
  model.layers.change([](LayerKind& kind) {
    if (!kind.attention) return;
    Attention& a = *kind.attention;
    a.latent = LatentAttention{96, 64, 64, 32, 64};
    a.head_dim = 96;
    a.kv_heads = a.heads;
  });
  EXPECT_NE(lacks_model(own_runtime(), model)->reason.find("gates on the output of attention"),
            std::string::npos);
}

TEST(SupportedModels, WhatMptRunLacksIsRefusedByName) {
  ModelSpec model = models::load_model("gpt2-1.5b");
  EXPECT_NO_THROW(check_own_runtime(model));
  model.head_bias = true;
  try {
    check_own_runtime(model);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("a bias in the output head"), std::string::npos) << error.what();
  }
}

TEST(SupportedModels, TorchtitanHasItsOwnModelsAndThoseOfItsParts) {
  const Framework& titan = *find_framework("torchtitan");
  for (const char* has : {"llama2-7b", "llama3.2-1b", "qwen3-235b-a22b", "mixtral-8x7b", "gpt-oss-20b"})
    EXPECT_FALSE(lacks_model(titan, models::load_model(has))) << has;
  for (const char* lacks : {"gpt2-1.5b", "mistral-7b", "qwen2-7b", "gemma-7b", "deepseek-v2", "deepseek-v3"})
    EXPECT_TRUE(lacks_model(titan, models::load_model(lacks))) << lacks;
  ModelSpec other = models::load_model("gpt-oss-20b");
  other.hidden *= 2;
  EXPECT_EQ(verdict("torchtitan", other).verdict, VerdictKind::not_written) << "its flavor has other sizes";
}

TEST(SupportedModels, ModelsOfOtherSizesAreBuiltLikeThoseThatAFrameworkHas) {
  const Framework& automodel = *find_framework("automodel");
  ModelSpec other = models::load_model("qwen3-30b-a3b");
  other.hidden *= 2;
  other.layers = LayerList(30, other.layers[0]);
  other.layers.change([](LayerKind& kind) { kind.moe->experts = 64; });
  EXPECT_FALSE(lacks_model(automodel, other));
  ModelSpec tied = other;
  tied.tied_embeddings = true;
  EXPECT_NE(lacks_model(automodel, tied)->reason.find("lacks tied embeddings"), std::string::npos)
      << "UNTIED_ONLY of nemo_automodel/components/models/qwen3_moe/model.py:250";
  ModelSpec shared = other;
  shared.layers.change([](LayerKind& kind) { kind.moe->shared_ffn_hidden = 512; });
  EXPECT_EQ(verdict("automodel", shared).verdict, VerdictKind::not_judged)
      << "no model that MPT knows of it has shared experts beside these parts";
  EXPECT_EQ(verdict("automodel", "mixtral-8x7b"), VerdictKind::not_written) << "by the class of transformers";
  EXPECT_FALSE(lacks_model(*find_framework("megatron-bridge"), models::load_model("llama3.2-3b")));
  EXPECT_TRUE(lacks_model(*find_framework("megatron-core"), models::load_model("llama3.2-3b")));
}

// Its classes for DeepSeek-V3.2 and GLM-5 have no next-token layers; those of Qwen3.5 train them.
TEST(SupportedModels, AutoModelTrainsNextTokenLayersOfSomeTypesAlone) {
  const Framework& automodel = *find_framework("automodel");
  for (const char* name : {"deepseek-v3.2", "glm-5.1"}) {
    ModelSpec model = models::load_model(name);
    EXPECT_TRUE(lacks_model(automodel, model)) << name;
    model = trained_by(automodel, model);
    EXPECT_EQ(model.next_token_layers, 0) << name;
    EXPECT_FALSE(lacks_model(automodel, model)) << name;
  }
  EXPECT_FALSE(lacks_model(automodel, models::load_model("qwen3.5-27b")));
}

// A value that only Hugging Face's file knows the numbers of does not come back.
TEST(SupportedModels, AModelThatComesBackDifferentIsRefusedByTheFirstSuchValue) {
  ModelSpec model = models::load_model("llama3-8b");
  model.logit_cap = 30.0;
  EXPECT_NE(lacks_model(*find_framework("transformers-fsdp"), model)->reason.find("soft caps on logits"),
            std::string::npos);
  EXPECT_EQ(lacks_model(*find_framework("transformers-fsdp"), model)->reason.substr(0, 16),
            "MPT cannot judge");
  EXPECT_EQ(verdict("pytorch", model).verdict, VerdictKind::not_written);
  EXPECT_NE(verdict("pytorch", model).reason.find("soft caps on logits"), std::string::npos);
  EXPECT_FALSE(lacks_model(own_runtime(), model));
  const auto alibi = lacks_model(own_runtime(), models::load_model("bloom-176b"));
  ASSERT_TRUE(alibi);
  EXPECT_NE(alibi->reason.find("alibi"), std::string::npos) << alibi->reason;
  EXPECT_FALSE(lacks_model(*find_framework("deepspeed"), models::load_model("gemma4-31b")));
}

TEST(SupportedModels, AutoModelTakesItsOwnModelsWithExpertsAndThoseThatWereStarted) {
  const Framework& automodel = *find_framework("automodel");
  for (const char* has : {"llama3-8b", "llama3.2-1b", "mistral-7b", "gemma-7b", "qwen3-30b-a3b",
                          "gpt-oss-20b", "gpt-neox-20b", "gemma3-27b"})
    EXPECT_FALSE(lacks_model(automodel, models::load_model(has))) << has;
  for (const char* unwritten : {"mixtral-8x7b", "deepseek-v2", "deepseek-v3", "gpt2-1.5b"})
    EXPECT_EQ(verdict("automodel", unwritten), VerdictKind::not_written) << unwritten;
}

// The models of this year, and what the registries of the packages say of them.
TEST(SupportedModels, VerdictsOfThisYearsModelsEqualTheRegistries) {
  using enum VerdictKind;
  const std::map<std::string, std::set<std::string>> lacking{
      {"megatron-core",
       {"kimi-k2", "deepseek-v4-flash", "minimax-m3", "minimax-m2.5", "step-3.5-flash", "kimi-k3",
        "gemma4-31b", "mimo-v2-flash", "llama4-scout"}},
      {"megatron-bridge", {"kimi-k3", "llama4-scout"}},
      {"torchtitan",
       {"deepseek-v4-flash", "minimax-m3", "minimax-m2.5", "step-3.5-flash", "kimi-k3", "gemma4-31b",
        "mimo-v2-flash", "llama4-scout", "nemotron-3-super", "nemotron-3-ultra", "qwen3-next-80b-a3b",
        "glm-5.1", "glm-4.7"}},
      {"transformers-fsdp", {}},
      {"automodel", {}}};
  for (const char* model :
       {"deepseek-v4-flash", "minimax-m3", "minimax-m2.5", "step-3.5-flash", "kimi-k3", "gemma4-31b",
        "mimo-v2-flash", "llama4-scout", "nemotron-3-super", "nemotron-3-ultra", "qwen3-next-80b-a3b",
        "qwen3.5-397b-a17b", "glm-5.1", "glm-4.7", "kimi-k2", "gpt-oss-120b"}) {
    for (const auto& [framework, without] : lacking) {
      const ModelVerdict said = verdict(framework.c_str(), models::load_model(model));
      const bool runs = said.verdict == exported || said.verdict == not_written;
      EXPECT_EQ(runs, !without.contains(model)) << model << " " << framework << ": " << said.reason;
      EXPECT_EQ(said.source.empty(), said.verdict == exported) << model << " " << framework;
    }
    EXPECT_EQ(verdict("pytorch", model) == not_run, false) << model;
    EXPECT_EQ(verdict("deepspeed", model), verdict("transformers-deepspeed", model)) << model;
  }
}

// Every model of the zoo trains somewhere, and each verdict that it does not run says where.
TEST(SupportedModels, EveryModelOfTheZooRunsSomewhere) {
  int judged = 0;
  for (const std::string& model : models::zoo_names()) {
    int runs = 0;
    for (const Framework& framework : known_frameworks()) {
      const ModelVerdict said = verdict(framework.name.c_str(), models::load_model(model));
      runs += said.verdict == VerdictKind::exported || said.verdict == VerdictKind::not_written ? 1 : 0;
      judged += said.verdict != VerdictKind::not_judged ? 1 : 0;
      EXPECT_EQ(said.reason.find(" lacks ") == std::string::npos, said.verdict != VerdictKind::not_run)
          << said.reason;
    }
    EXPECT_GE(runs, 2) << model << ": PyTorch takes any, and another one has it";
  }
  EXPECT_GE(judged, 0.95 * double(models::zoo_names().size() * known_frameworks().size()));
}

TEST(SupportedModels, WaysToTrainThatNoExportWritesAreSaid) {
  const ModelSpec model = models::load_model("llama3-8b");
  Training lora;
  lora.adapter_rank = 16;
  lora.adapter_targets = {AdapterTarget::qkv};
  for (const char* name : {"transformers-fsdp", "transformers-deepspeed", "deepspeed", "torchtitan"}) {
    const Framework& framework = *find_framework(name);
    EXPECT_FALSE(supports_training(framework, lora)) << name;
    const ModelVerdict said = verdict_on(framework, model, lora);
    EXPECT_EQ(said.verdict, VerdictKind::not_written) << name;
    EXPECT_NE(said.reason.find("LoRA"), std::string::npos) << said.reason;
    EXPECT_EQ(verdict_on(framework, model, Training{}).verdict, VerdictKind::exported) << name;
  }
  EXPECT_EQ(verdict_on(*find_framework("automodel"), model, lora).verdict, VerdictKind::exported);
  EXPECT_TRUE(supports_training(*find_framework("megatron-core"), lora));
}

// megatron-core 0.19.2 asks nothing of the precision of experts.
TEST(SupportedModels, MegatronTrainsExpertsInAnyOfItsPrecisions) {
  for (const char* name : {"megatron-core", "megatron-bridge"}) {
    for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16})
      EXPECT_FALSE(supports_model(*find_framework(name), models::load_model("mixtral-8x7b"), precision))
          << name;
  }
}

}  // namespace
}  // namespace mpt::frameworks
