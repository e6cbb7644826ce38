// SPDX-License-Identifier: Apache-2.0
#pragma once

// Family: the meaning of a type of Hugging Face's config.json: keys of values, defaults of absent keys, kinds
// of layers, names of weights. The table is models/dialects/hugging_face.json. It serves reading and writing;
// of several keys the first is written. Functions of family_code.cpp handle the exceptions.

#include <map>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/ranges.h"
#include "models/values.h"

namespace mpt::models {

/// The kind of each layer. The first key that the file has decides: a list with an entry for each layer, a
/// list of layers, a period, a first and a last layer.
struct LayerRule {
#include "generated/LayerRule.inc"
};

/// Names of the tensors of layers: Llama's, or GPT-2's.
enum class LayerTensorNames { llama, gpt2 };
/// mlp: each expert has three tensors in "mlp.experts.". mixtral: in "block_sparse_moe.". fused: one for all.
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
    const auto* const found = find_value(keys, value);
    return found != nullptr && !found->empty();
  }
};

struct FamilyTable {
  std::map<std::string, Family> families;  // with all inherited values
  std::vector<std::string> types;          // in the order of the table
};
/// Throws UserError: first for unknown keys and forms, then for words and rules without effect.
FamilyTable read_families(const std::string& text);
/// The family of `type` with all inherited values; null: the table has no such type.
const Family* find_family(const std::string& type);
/// Types in the order of the table.
const std::vector<std::string>& family_types();
/// Names of the pairs of functions in models/family_code.cpp.
std::vector<std::string> family_code_names();
/// Allowed words of the value, also in rules for layers; empty: it takes no words.
std::vector<std::string> known_words(Value value);
/// Names of activations in config.json, the preferred one first.
struct ActivationName {
  const char* name;
  ActivationKind kind;
};
const std::vector<ActivationName>& activation_names();

}  // namespace mpt::models
