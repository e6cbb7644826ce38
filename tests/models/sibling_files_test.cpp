// SPDX-License-Identifier: Apache-2.0

// Files of config.json of other sizes and versions of the families in tests/models/configs. No rule was made
// for them: at least nine in ten must read right. They are from ai-dynamo/aiconfigurator (model_configs), but
// GLM-4.5-Air's, which a log of ms-swift prints; keys that say nothing about the model are left out.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/json.h"
#include "models/hf_config.h"
#include "models/parameter_count.h"
#include "models/zoo.h"

namespace mpt::models {
namespace {

// Parameters in 10^9: all of them without towers and next-token layers, and those of one token with both
// tables (0: the model is dense). `published`: where they are from, and what the owner's number counts
// otherwise.
struct Sibling {
  const char* file;
  double total, active;
  const char* published;
};

const Sibling kSiblings[] = {
    {"Qwen--Qwen3-1.7B", 1.72, 0, "model card: 1.7"},
    {"Qwen--Qwen3-32B", 32.8, 0, "model card: 32.8"},
    {"Qwen--Qwen3-235B-A22B", 235, 22, "model card"},
    {"Qwen--Qwen3-VL-2B-Instruct", 1.72, 0, "as Qwen3-1.7B"},
    {"Qwen--Qwen3-VL-4B-Instruct", 4.02, 0, "model card of Qwen3-4B: 4.0"},
    {"Qwen--Qwen3-VL-30B-A3B-Instruct", 30.5, 3.3, "model card of Qwen3-30B-A3B"},
    {"Qwen--Qwen3-VL-32B-Instruct", 32.8, 0, "as Qwen3-32B"},
    {"Qwen--Qwen3.5-122B-A10B", 122, 10, "model card"},
    {"Qwen--Qwen3.5-35B-A3B", 35, 3.4, "name; 3 without tables"},
    {"nvidia--Qwen3.6-27B-NVFP4", 27, 0, "name"},
    {"nvidia--Qwen3.6-35B-A3B-NVFP4", 35, 3.4, "name; 3 without tables"},
    {"deepseek-ai--DeepSeek-R1", 671, 37, "model card"},
    {"nvidia--DeepSeek-V3.1-NVFP4", 671, 37, "model card of DeepSeek-V3.1"},
    {"deepseek-ai--DeepSeek-V4-Flash", 284, 13.8, "arXiv:2606.19348, abstract: 284, 13 without tables"},
    {"meta-llama--Llama-4-Scout-17B-16E-Instruct", 107.8, 17.2, "model card: 109 with its tower of 0.9, 17"},
    {"mistralai--Mixtral-8x22B-v0.1", 141, 39, "model card"},
    {"zai-org--GLM-5", 744, 41.8, "model card: 744, 40 without tables"},
    {"zai-org--GLM-5.2", 744, 41.5, "as GLM-5, with fewer indices"},
    {"nvidia--Gemma-4-31B-IT-NVFP4", 30.7, 0, "model card"},
    {"nvidia--Kimi-K2.6-NVFP4", 1026, 32.9, "docs.nvidia.com: 1026, 33"},
    {"nvidia--Kimi-K2.7-Code-NVFP4", 1026, 32.9, "as Kimi-K2.6"},
    {"nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8", 120.7, 12.8, "docs.nvidia.com: 120, 12 without tables"},
    {"nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-FP8", 550, 56, "docs.nvidia.com: 550, 55"},
    {"nvidia--Llama-3.1-70B-Instruct-FP8", 70.6, 0, "model card of Llama-3.1-70B"},
    {"MiniMaxAI--MiniMax-M2.7", 229, 11, "model card: 230, 10 without tables"},
    {"nvidia--MiniMax-M3-NVFP4", 426.2, 26, "arXiv:2606.13392: 428 with its tower"},
    {"stepfun-ai--Step-3.7-Flash-FP8", 196, 10.9, "vLLM recipe page: 196, 11"},
    {"Qwen--Qwen3-Next-80B-A3B-Thinking", 80, 3.9, "model card: 80, 3 without tables"},
    {"zai-org--GLM-4.5-Air", 106.9, 13.4, "model card: 106, 12 without tables"},
    {"zai-org--GLM-4.7-FP8", 355, 33.6, "model card of GLM-4.7: 355, 32 without tables"},
    {"zai-org--GLM-4.7-Flash", 30, 3.7, "name: 30B-A3B"}};

const std::filesystem::path kFolder = std::filesystem::path(MPT_SOURCE_DIR) / "tests/models/siblings";

TEST(SiblingFiles, NineInTenReadRight) {
  // Owners print two or three digits.
  constexpr double kRounding = 0.025;
  size_t right = 0;
  std::string wrong;
  for (const Sibling& s : kSiblings) {
    try {
      const ParameterCount count =
          count_parameters(load_model((kFolder / (std::string(s.file) + ".json")).string()));
      const bool dense = s.active == 0.0;
      const double total = double(count.total) / 1e9, active = double(count.active) / 1e9;
      if (std::abs(total / s.total - 1.0) < kRounding &&
          (dense ? count.active == count.total : std::abs(active / s.active - 1.0) < 2.0 * kRounding)) {
        ++right;
      } else {
        wrong += std::string(s.file) + ": " + std::to_string(total) + ", " + std::to_string(active) + "\n";
      }
    } catch (const UserError& error) {
      wrong += std::string(s.file) + ": " + error.what() + "\n";
    }
  }
  EXPECT_GE(std::size(kSiblings), 30u);
  EXPECT_GE(double(right), 0.9 * double(std::size(kSiblings))) << wrong;
  RecordProperty("wrong", wrong);
}

TEST(SiblingFiles, AreAllRead) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder))
    files += entry.path().extension() == ".json" ? 1 : 0;
  EXPECT_EQ(files, std::size(kSiblings));
}

// Names of quantised matrices do not count as the model's size, anything else does.
TEST(SiblingFiles, QuantisedNamesDoNotCountAgainstTheLimit) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "mpt-quantised-names.json";
  std::ifstream in(kFolder / "Qwen--Qwen3-1.7B.json");
  Json json = Json::parse(in);
  const auto write = [&](const char* key) {
    Json large = json;
    for (int i = 0; i < 40000; ++i)
      large[key]["ignore"].push_back("model.layers." + std::to_string(i) + ".mlp.experts");
    std::ofstream(path) << large;
  };
  write("quantization_config");
  EXPECT_EQ(load_model(path.string()).layers.count(), 28);
  write("other_names");
  EXPECT_THROW(load_model(path.string()), UserError);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace mpt::models
