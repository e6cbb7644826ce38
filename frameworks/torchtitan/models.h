// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace mpt::frameworks {

/// Names and sizes that torchtitan's models have (torchtitan/models/*/__init__.py at v0.2.2).
struct TitanModel {
  const char *zoo, *name, *flavor;
};
inline constexpr TitanModel kTitanModels[] = {
    {"llama3-8b", "llama3", "8B"},         {"llama3-70b", "llama3", "70B"},
    {"llama3-405b", "llama3", "405B"},     {"qwen3-8b", "qwen3", "8B"},
    {"qwen3-30b-a3b", "qwen3", "30B-A3B"}, {"qwen3-235b-a22b", "qwen3", "235B-A22B"},
    {"deepseek-v3", "deepseek_v3", "671B"}};

}  // namespace mpt::frameworks
