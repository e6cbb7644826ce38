// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "core/model_spec.h"

namespace mpt::frameworks {

/// A model that torchtitan has by name (torchtitan/models/*/__init__.py at v0.3.0): a row of models.json.
/// Exports write those that are equal to the zoo's in all that a plan knows. Imports also read others, and
/// those of v0.2.2 and of commit 067f987d. The 236B has an epsilon of 1e-5, and YaRN without a factor on
/// attention.
struct TitanModel {
  std::string name, flavor;
  std::string zoo;       // the zoo's model that it is
  Json changes;          // of that model's file, as a patch (RFC 7386); null: none
  bool written = false;  // by exports
  bool sees = false;     // it has an encoder of pictures, too, which no plan describes

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

/// The one that exports write for `model`; null where there is none.
const TitanModel* titan_model(const ModelSpec& model);

/// Code for any other model takes the blocks of one of these: Llama 3, Qwen 3 (experts, norms of queries and
/// keys) or DeepSeek-V3 (latent attention).
struct TitanFamily {
  const char *name, *classes;  // folder of torchtitan/models, and how its classes begin
};
const TitanFamily& titan_family(const ModelSpec& model);

/// The value of MODEL of build_model.py.
std::string titan_sizes(const ModelSpec& model);

}  // namespace mpt::frameworks
