// SPDX-License-Identifier: Apache-2.0
#pragma once

// Family: the meaning of a type of Hugging Face's config.json: keys of values, defaults of absent keys, kinds
// of layers, names of weights. The table is models/dialects/hugging_face.json. It is read and written; of
// several keys the first is written. Functions of family_code.cpp handle the exceptions.

#include <map>
#include <string>
#include <vector>

#include "base/fields.h"
#include "models/values.h"

namespace mpt::models {

/// Which layers are of which kind. The first that the file has decides: a list with an entry for each layer,
/// a list of layers, a period, a first and a last layer.
struct LayerRule {
#include "generated/LayerRule.inc"
};

/// Names of the tensors of layers: Llama's, or GPT-2's.
enum class LayerTensorNames { llama, gpt2 };
/// mlp: each expert's three under "mlp.experts.". mixtral: under "block_sparse_moe.". fused: one for all.
enum class ExpertTensors { mlp, mixtral, fused };
/// layer: a further layer's number, with copies of the table and the head (DeepSeek-V3). mtp: the prefix
/// "mtp." (Qwen3-Next and Qwen3.5, NVIDIA-NeMo/Automodel, models/qwen3_5/state_dict_adapter.py).
enum class ModuleTensors { layer, mtp };

struct WeightNames {
#include "generated/WeightNames.inc"
};

struct Family {
#include "generated/Family.inc"

  bool has_keys(Value value) const {
    const auto found = keys.find(value);
    return found != keys.end() && !found->second.empty();
  }
};

struct FamilyTable {
  std::map<std::string, Family> families;  // with all that they inherit
  std::vector<std::string> types;          // in the order of the table
};
/// Throws UserError: of unknown keys and forms first, of words and rules without effect then.
FamilyTable read_families(const std::string& text);
/// The family of `type` with all that it inherits; null: the table has no such type.
const Family* find_family(const std::string& type);
/// In the order of the table.
const std::vector<std::string>& family_types();
/// Allowed words of the value, in rules for layers, too; empty: it takes no words.
std::vector<std::string> known_words(Value value);
/// Names of activations in config.json, the preferred one first.
struct ActivationName {
  const char* name;
  ActivationKind kind;
};
const std::vector<ActivationName>& activation_names();

}  // namespace mpt::models
