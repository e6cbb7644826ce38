// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/model_spec.h"

namespace mpt::frameworks {

/// Models that torchtitan has by name (torchtitan/models/*/__init__.py at v0.3.0): equal to the zoo's in all
/// that a plan knows.
struct TitanModel {
  const char *zoo, *name, *flavor;
};
inline constexpr TitanModel kTitanModels[] = {
    {"llama3-8b", "llama3", "8B"},         {"llama3-70b", "llama3", "70B"},
    {"llama3-405b", "llama3", "405B"},     {"qwen3-8b", "qwen3", "8B"},
    {"qwen3-30b-a3b", "qwen3", "30B-A3B"}, {"gpt-oss-20b", "gpt_oss", "20b"},
    {"gpt-oss-120b", "gpt_oss", "120b"}};
/// Others that imports read and exports do not write: they differ from the zoo's, or are of v0.2.2. The
/// 236B has an epsilon of 1e-5, and YaRN without a factor on attention.
inline constexpr TitanModel kOlderTitanModels[] = {{"qwen3-235b-a22b", "qwen3", "235B-A22B"},
                                                   {"deepseek-v2", "deepseek_v3", "236B"},
                                                   {"deepseek-v3", "deepseek_v3", "671B"}};

/// Others that its files name, as changes of a model of the zoo.
struct TitanSizes {
  const char *name, *flavor, *like;
  int64_t layers, hidden, ffn_hidden, heads, kv_heads, head_dim, vocab;
  bool tied;
};
inline constexpr TitanSizes kTitanSizes[] = {
    {"llama3", "debugmodel", "llama3-8b", 6, 256, 768, 16, 16, 16, 2048, false},
    {"llama3", "1B", "llama3-8b", 16, 2048, 8192, 32, 8, 64, 128256, true},
    {"llama3", "3B", "llama3-8b", 28, 3072, 8192, 24, 8, 128, 128256, true},
    {"qwen3", "debugmodel", "qwen3-8b", 8, 256, 3072, 16, 8, 128, 2048, true},
    {"qwen3", "debugmodel_non_fused_qkv", "qwen3-8b", 8, 256, 3072, 16, 8, 128, 2048, true},
    {"qwen3", "0.6B", "qwen3-8b", 28, 1024, 3072, 16, 8, 128, 151936, true},
    {"qwen3", "1.7B", "qwen3-8b", 28, 2048, 6144, 16, 8, 128, 151936, true},
    {"qwen3", "4B", "qwen3-8b", 36, 2560, 9728, 32, 8, 128, 151936, true},
    {"qwen3", "14B", "qwen3-8b", 40, 5120, 17408, 40, 8, 128, 151936, false},
    {"qwen3", "32B", "qwen3-8b", 64, 5120, 25600, 64, 8, 128, 151936, false}};

/// Models that no plan describes, of which one rule is known all the same: key and value heads must divide by
/// the tensor ranks.
struct TitanHeads {
  const char *name, *flavor;
  int64_t kv_heads;
};
inline constexpr TitanHeads kTitanHeads[] = {{"qwen3_5", "0.8B", 2},      {"qwen3_5", "2B", 2},
                                             {"qwen3_5", "4B", 4},        {"qwen3_5", "9B", 4},
                                             {"qwen3_5", "27B", 4},       {"qwen3_5", "35B-A3B", 2},
                                             {"qwen3_5", "122B-A10B", 2}, {"qwen3_5", "397B-A17B", 2}};

/// The one whose architecture is `model`'s; null where there is none.
const TitanModel* titan_model(const ModelSpec& model);

/// Lines of Python that build torchtitan's configuration of any other model: MODEL and its functions, of
/// which build_model() is the last.
std::string titan_model_code(const ModelSpec& model);
/// That code takes the blocks of one of these: Llama 3, Qwen 3 (experts, norms of queries and keys) or
/// DeepSeek-V3 (latent attention).
struct TitanFamily {
  const char *name, *classes;  // folder of torchtitan/models, and how its classes begin
};
const TitanFamily& titan_family(const ModelSpec& model);

}  // namespace mpt::frameworks
