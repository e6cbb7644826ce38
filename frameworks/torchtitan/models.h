// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "core/model_spec.h"

namespace mpt::frameworks {

/// A model that torchtitan has by name (torchtitan/models/*/__init__.py at v0.3.0): a row of models.json.
/// Exports name a model only if it equals the zoo's in all values that a plan knows. Imports also read the
/// others, and those of v0.2.2 and of commit 067f987d. The 236B has an epsilon of 1e-5, and YaRN without a
/// factor on attention.
struct TitanModel {
#include "generated/TitanModel.inc"
};
const std::vector<TitanModel>& titan_models();

/// The model that exports name for `model`; null if there is none.
const TitanModel* titan_model(const ModelSpec& model);

/// The blocks that code for any other model uses: Llama 3's, Qwen 3's (experts, norms of queries and keys) or
/// DeepSeek-V3's (latent attention).
struct TitanFamily {
  const char *name, *classes;  // folder of torchtitan/models; prefix of its classes
};
const TitanFamily& titan_family(const ModelSpec& model);

/// The value of MODEL of build_model.py.
std::string titan_sizes(const ModelSpec& model);

}  // namespace mpt::frameworks
