// SPDX-License-Identifier: Apache-2.0
#include "models/parameter_count.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "models/zoo.h"

namespace mpt::models {
namespace {

struct Published {
  const char* model;
  double total;
  double total_unit;  // 1: exact; else the precision the publisher gives
  double active;      // 0: dense
  double active_unit;
};

// Exact counts are those of the published weights (safetensors metadata or model.num_parameters()); rounded
// ones are from the papers and model cards named by the model.
constexpr double M = 1e6, B = 1e9, T = 1e12;
const Published kPublished[] = {
    {"gpt2-124m", 124439808, 1, 0, 0},
    {"gpt2-1.5b", 1557611200, 1, 0, 0},
    {"gpt3-175b", 175 * B, B, 0, 0},
    {"llama2-7b", 6738415616, 1, 0, 0},
    {"llama2-70b", 68976648192, 1, 0, 0},
    {"tinyllama-1.1b", 1100048384, 1, 0, 0},
    {"codellama-7b", 6738546688, 1, 0, 0},
    {"codellama-13b", 13016028160, 1, 0, 0},
    {"codellama-34b", 33743970304, 1, 0, 0},
    {"open-llama-3b", 3426473600, 1, 0, 0},
    {"phi-1.5", 1418270720, 1, 0, 0},
    {"pythia-12b", 11846072320, 1, 0, 0},
    {"llama3-8b", 8030261248, 1, 0, 0},
    {"llama3-70b", 70553706496, 1, 0, 0},
    {"llama3-405b", 405853388800, 1, 0, 0},
    {"llama3.2-1b", 1235814400, 1, 0, 0},
    {"mistral-7b", 7241732096, 1, 0, 0},
    {"mixtral-8x7b", 46702792704, 1, 12.9 * B, 0.1 * B},
    {"mixtral-8x22b", 141 * B, B, 39 * B, B},
    {"qwen2-7b", 7615616512, 1, 0, 0},
    {"qwen2.5-72b", 72706203648, 1, 0, 0},
    {"qwen3-8b", 8190735360, 1, 0, 0},
    {"qwen3-30b-a3b", 30532122624, 1, 3.3 * B, 0.1 * B},
    {"qwen3-235b-a22b", 235 * B, B, 22 * B, B},
    {"gemma-7b", 8537680896, 1, 0, 0},
    {"gemma2-27b", 27227128320, 1, 0, 0},
    {"phi3-mini", 3821079552, 1, 0, 0},
    {"deepseek-v2", 236 * B, B, 21 * B, B},
    {"deepseek-v3", 671 * B, B, 37 * B, B},
    // The card counts without the embedding's copy; 20.9B in all, 3.6B active (arXiv:2508.10925, table 1).
    {"gpt-oss-20b", 20.9 * B, 0.1 * B, 0, 0},
    {"gpt-oss-120b", 116.8 * B, 0.1 * B, 0, 0},
    {"bloom-176b", 176247271424, 1, 0, 0},
    {"gpt-neox-20b", 20554567680, 1, 0, 0},
    {"falcon-7b", 6921720704, 1, 0, 0},
    {"opt-30b", 30 * B, B, 0, 0},
    {"kimi-k2", 1026 * B, B, 32.8 * B, 0.1 * B},
    {"qwen3.5-397b-a17b", 396 * B, B, 17 * B, B},
    {"qwen3-coder-480b-a35b", 480 * B, B, 35 * B, B},
    {"nemotron-3-nano", 31.6 * B, 0.1 * B, 3.6 * B, 0.1 * B},
    {"nemotron-h-56b", 56 * B, B, 0, 0},
    {"llama4-maverick", 401 * B, B, 17 * B, B},
    {"qwen2.5-0.5b", 0.49 * B, 0.01 * B, 0, 0},
    {"qwen2.5-1.5b", 1.54 * B, 0.01 * B, 0, 0},
    {"qwen2.5-3b", 3.09 * B, 0.01 * B, 0, 0},
    {"qwen2.5-7b", 7615616512, 1, 0, 0},
    {"qwen2.5-7b-instruct", 7615616512, 1, 0, 0},
    {"qwen2.5-14b", 14.8 * B, 0.1 * B, 0, 0},
    {"qwen2.5-32b", 32.8 * B, 0.1 * B, 0, 0},
    {"qwen3-1.7b", 1.7 * B, 0.1 * B, 0, 0},
    {"qwen3-4b", 4.0 * B, 0.1 * B, 0, 0},
    {"qwen3-14b", 14.8 * B, 0.1 * B, 0, 0},
    {"qwen3-32b", 32.8 * B, 0.1 * B, 0, 0},
    {"qwen3-30b-a3b-2507", 30.5 * B, 0.1 * B, 3.3 * B, 0.1 * B},
    {"qwen3-next-80b-a3b", 80 * B, B, 3 * B, B},
    {"qwen3.5-9b", 9 * B, B, 0, 0},
    {"qwen3.5-35b-a3b", 35 * B, B, 3 * B, B},
    {"qwen3.5-122b-a10b", 122 * B, B, 10 * B, B},
    {"llama3.2-3b", 3.21 * B, 0.01 * B, 0, 0},
    {"gemma2-2b", 2.61 * B, 0.01 * B, 0, 0},
    {"gemma2-9b", 9.24 * B, 0.01 * B, 0, 0},
    {"gemma3-1b", B, B, 0, 0},
    {"gemma3-27b", 27 * B, B, 0, 0},
    {"phi4", 14.7 * B, 0.1 * B, 0, 0},
    {"mistral-nemo-12b", 12.2 * B, 0.1 * B, 0, 0},
    {"mistral-small-24b", 24 * B, B, 0, 0},
    {"moonlight-16b-a3b", 16 * B, B, 3 * B, B},
    {"glm-4.7-flash", 30 * B, B, 0, 0},
    {"nemotron-super-49b-v1", 49.9 * B, 0.1 * B, 0, 0},
    {"smollm2-135m", 135e6, 1e6, 0, 0},
    {"smollm2-360m", 362e6, 1e6, 0, 0},
    {"smollm2-1.7b", 1.71 * B, 0.01 * B, 0, 0},
    {"smollm3-3b", 3.08 * B, 0.01 * B, 0, 0},
    {"olmo2-7b", 7.30 * B, 0.01 * B, 0, 0},
    {"olmo2-13b", 13.7 * B, 0.1 * B, 0, 0},
    {"olmo2-32b", 32.2 * B, 0.1 * B, 0, 0},
    {"olmoe-1b-7b", 6.92 * B, 0.01 * B, 1.3 * B, 0.1 * B},
    {"granite-3.3-8b", 8.17 * B, 0.01 * B, 0, 0},
    {"falcon3-7b", 7.46 * B, 0.01 * B, 0, 0},
    {"command-r7b", 8.03 * B, 0.01 * B, 0, 0},
    {"falcon-h1-0.5b", 521 * M, M, 0, 0},
    {"falcon-h1-1.5b-deep", 1.55 * B, 0.01 * B, 0, 0},
    {"falcon-h1-7b", 7.59 * B, 0.01 * B, 0, 0},
    {"falcon-h1-34b", 33.6 * B, 0.1 * B, 0, 0},
    {"falcon3-1b", 1.67 * B, 0.01 * B, 0, 0},
    {"falcon3-3b", 3.23 * B, 0.01 * B, 0, 0},
    {"falcon3-10b", 10.3 * B, 0.1 * B, 0, 0},
    {"ernie-4.5-0.3b", 0.36 * B, 0.01 * B, 0, 0},
    {"ernie-4.5-21b-a3b", 21.8 * B, 0.1 * B, 3 * B, B},
    {"seed-oss-36b", 36 * B, B, 0, 0},
    {"seed-coder-8b", 8.25 * B, 0.01 * B, 0, 0},
    {"gemma3-270m", 268 * M, M, 0, 0},
    {"gemma4-12b", 12 * B, B, 0, 0},
    {"exaone-4.0-1.2b", 1.28 * B, 0.01 * B, 0, 0},
    {"k-exaone-236b-a23b", 236.6 * B, 0.1 * B, 23 * B, B},  // its card cuts it off: 236B
    {"granite-3.3-2b", 2.53 * B, 0.01 * B, 0, 0},
    {"hy3", 295 * B, B, 21 * B, B},
    {"kimi-linear-48b-a3b", 49 * B, B, 3 * B, B},
    {"laguna-s-2.1", 118 * B, B, 8 * B, B},
    {"ling-1t", 999.705 * B, 0.01 * B, 50 * B, 2 * B},
    {"ling-flash-2.0", 103 * B, B, 6.1 * B, 0.1 * B},
    {"minicpm5-1b", 1.08 * B, 0.01 * B, 0, 0},
    {"ministral-3-3b", 3.4 * B, 0.1 * B, 0, 0},
    {"ministral-3-8b", 8.4 * B, 0.2 * B, 0, 0},
    {"ministral-3-14b", 13.5 * B, 0.1 * B, 0, 0},
    {"mistral-7b-v0.3", 7248023552, 1, 0, 0},
    {"mistral-7b-instruct-v0.2", 7241732096, 1, 0, 0},
    {"llama2-13b", 13015864320, 1, 0, 0},
    {"phi-2", 2779683840, 1, 0, 0},
    {"phi4-mini", 3.84 * B, 0.01 * B, 0, 0},
    {"olmo2-1b", 1.48 * B, 0.01 * B, 0, 0},
    {"glm4-9b", 9.4 * B, 0.1 * B, 0, 0},
    {"baichuan2-7b", 7505973248, 1, 0, 0},
    {"nemotron-3-nano-4b", 3.97 * B, 0.01 * B, 0, 0},
    {"nemotron-nano-9b-v2", 8888227328, 1, 0, 0},
    {"nemotron-nano-12b-v2", 12.3 * B, 0.1 * B, 0, 0},
    {"nemotron-3.5-lightning", 31.6 * B, 0.1 * B, 3.6 * B, 0.1 * B},
    {"qwen1.5-moe-a2.7b", 14.3 * B, 0.1 * B, 2.7 * B, 0.1 * B},
    {"qwen3.5-0.8b", 0.8 * B, 0.1 * B, 0, 0},
    {"qwen3.5-2b", 2 * B, B, 0, 0},
    {"qwen3.5-4b", 4 * B, B, 0, 0},
    {"qwen3.8-2.4t-a95b", 2.4 * T, 0.1 * T, 95 * B, B},
    {"pythia-1.4b", 1414647808, 1, 0, 0},
    {"redpajama-incite-3b", 2775864320, 1, 0, 0},
    {"cerebras-gpt-1.3b", 1316 * M, M, 0, 0},
    {"yi-34b", 34388917248, 1, 0, 0},
    {"apertus-8b", 8053338176, 1, 0, 0},
    {"ministral-8b", 8019808256, 1, 0, 0},
    {"devstral-2-123b", 125.03 * B, 0.01 * B, 0, 0},
    {"phi3-mini-128k", 3.8 * B, 0.1 * B, 0, 0},
    {"starcoder2-3b", 3 * B, B, 0, 0},
    {"afm-4.5b", 4.6 * B, 0.1 * B, 0, 0},
    {"nemotron-mini-4b", 4 * B, B, 0, 0},
    {"olmo3-7b", 7298011136, 1, 0, 0},
    {"hunyuan-0.5b", 539010048, 1, 0, 0},
    {"glm4-9b-0414", 9400279040, 1, 0, 0},
    {"glm4-32b-0414", 32.57 * B, 0.01 * B, 0, 0},
    {"falcon-h1-1.5b", 1.5 * B, 0.5 * B, 0, 0},
    {"falcon-h1-3b", 3.15 * B, 0.01 * B, 0, 0},
    {"lfm2-350m", 354483968, 1, 0, 0},
    {"lfm2-8b-a1b", 8.3 * B, 0.1 * B, 1.5 * B, 0.1 * B},
    {"trinity-nano", 6120003328, 1, B, B},
    {"jamba-v0.1", 52 * B, B, 12 * B, B},
    {"lfm2-vl-450m", 354483968, 1, 0, 0},  // of the decoder, as in the further rows of models with towers
    {"glm-4.6v-flash", 9400279040, 1, 0, 0},
    {"internvl3.5-8b", 8190735360, 1, 0, 0},
    {"qwen2-vl-7b", 7615616512, 1, 0, 0},
    {"qwen2.5-vl-7b", 7615616512, 1, 0, 0},
    {"mistral-small-3.1-24b", 24 * B, B, 0, 0},
    {"mistral-small-4-119b", 119 * B, B, 6.5 * B, 0.2 * B},
    {"mistral-medium-3.5-128b", 125 * B, B, 0, 0},
    {"pixtral-12b", 12.2 * B, 0.1 * B, 0, 0},
    {"llava-1.5-7b", 6.74 * B, 0.01 * B, 0, 0},
    {"smolvlm2-2.2b", 1.8 * B, 0.1 * B, 0, 0},
    {"voxtral-mini-3b", 4.0 * B, 0.1 * B, 0, 0},
    {"paddleocr-vl-0.9b", 467 * M, M, 0, 0},
    {"orpheus-3b", 3.30 * B, 0.01 * B, 0, 0},
    {"qwen-7b", 7721324544, 1, 0, 0},
    {"gpt-j-6b", 6050882784, 1, 0, 0},
    {"mpt-7b", 6649286656, 1, 0, 0},
    {"replit-code-v1-3b", 2.6 * B, 0.1 * B, 0, 0},
    {"stablelm-2-1.6b", 1.64 * B, 0.01 * B, 0, 0},
    {"dbrx-132b", 132 * B, B, 36 * B, B},
    {"jamba-1.5-large", 398 * B, 2 * B, 94 * B, B},
    // The card's 5.1B has towers for images and sound of 0.45B, which no plan holds.
    {"gemma4-e2b", 4.6 * B, 0.1 * B, 0, 0},
    {"deepseek-v2-lite", 15.7 * B, 0.1 * B, 2.4 * B, 0.3 * B},
    // The card's 30B has a tower for images of 1.9B, which no plan holds.
    {"muse-glimmer-30b", 27.9 * B, 0.1 * B, 0, 0},
};

TEST(ParameterCount, EqualsThePublishedNumbers) {
  for (const Published& p : kPublished) {
    const ParameterCount count = count_parameters(load_model(p.model));
    EXPECT_EQ(std::round(double(count.total) / p.total_unit), std::round(p.total / p.total_unit))
        << p.model << " total " << count.total;
    if (p.active > 0) {
      // Publishers round active counts or cut them off (Qwen: 3.35 is "3.3B").
      const double shown = double(count.active) / p.active_unit,
                   published = std::round(p.active / p.active_unit);
      EXPECT_TRUE(std::round(shown) == published || std::floor(shown + 1e-9) == published)
          << p.model << " active " << count.active;
    } else if (load_model(p.model).moe() == nullptr) {
      EXPECT_EQ(count.active, count.total) << p.model;
    }
  }
}

// arXiv:2508.10925, table 1, counts the output head into the active parameters but not the token table.
TEST(ParameterCount, GptOssActiveEqualsItsModelCard) {
  for (const auto& [name, total, active] :
       {std::tuple{"gpt-oss-20b", 20.91, 3.61}, std::tuple{"gpt-oss-120b", 116.83, 5.13}}) {
    const ModelSpec model = load_model(name);
    const ParameterCount count = count_parameters(model);
    EXPECT_NEAR(double(count.total) / B, total, 0.005) << name;
    EXPECT_NEAR(double(count.active - model.vocab * model.hidden) / B, active, 0.005) << name;
  }
}

TEST(ParameterCount, EmbeddingIsTablesAndUntiedHead) {
  EXPECT_EQ(count_parameters(load_model("gpt2-124m")).embedding, (50257 + 1024) * 768);
  EXPECT_EQ(count_parameters(load_model("llama2-7b")).embedding, 2 * 32000 * 4096);
  EXPECT_EQ(count_parameters(load_model("bloom-176b")).embedding, int64_t{250880} * 14336);
}

TEST(ParameterCount, EveryModelOfTheZooLoadsAndIsCounted) {
  EXPECT_GE(zoo_names().size(), 25u);
  for (const std::string& name : zoo_names()) {
    const ModelSpec model = load_model(name);
    EXPECT_EQ(model.name, name);
    EXPECT_GT(count_parameters(model).total, 0);
  }
}

}  // namespace
}  // namespace mpt::models
