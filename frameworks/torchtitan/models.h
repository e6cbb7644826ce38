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
  std::string name, flavor;
  std::string zoo;       // its model in the zoo, before `changes`
  Json changes;          // of that model's file, as a patch (RFC 7386); null: none
  bool written = false;  // by exports
  bool sees = false;     // it also has an image encoder, which no plan describes

  static void describe(auto& v) {
    using T = TitanModel;
    v.field("name", &T::name, "folder of torchtitan/models");
    v.field("flavor", &T::flavor, "name of its sizes");
    v.field("zoo", &T::zoo, "the zoo's model that it is");
    v.field("changes", &T::changes, "what differs from that model, as a patch of its file", rare_field());
    v.field("written", &T::written, "exports write it", rare_field());
    v.field("sees", &T::sees, "it encodes pictures, too", rare_field());
  }
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
