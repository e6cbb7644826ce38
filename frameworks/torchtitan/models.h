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

/// The one whose architecture is `model`'s; null where there is none.
const TitanModel* titan_model(const ModelSpec& model);

/// Lines of Python that build torchtitan's configuration of any other model: MODEL and its functions, of
/// which build_model() is the last.
std::string titan_model_code(const ModelSpec& model);
/// Whether that code needs the blocks of Llama 3, with its scaled rotary positions, or those of Qwen 3.
const char* titan_family(const ModelSpec& model);

}  // namespace mpt::frameworks
