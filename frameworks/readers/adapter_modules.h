// SPDX-License-Identifier: Apache-2.0
#pragma once

// The parts of a model that get adapters, for frameworks that choose linear layers by patterns of their
// names.

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model_spec.h"
#include "core/training.h"
#include "frameworks/import.h"
#include "frameworks/readers/settings.h"

namespace mpt::frameworks {

/// Whether words of a table's condition are all among `conditions`, and those with "!" before them are not.
bool conditions_hold(const std::string& condition, const std::set<std::string>& conditions);

/// Names of the decoder's linear layers, and the part that gets adapters with each; none: no part does.
using AdapterModules = std::vector<std::pair<std::string, std::optional<AdapterTarget>>>;

/// Hugging Face's names: "model.layers.0.self_attn.q_proj", by the model's type. `fused`: of classes with one
/// product for queries, keys and values, and one for both halves of a gated MLP.
AdapterModules hugging_face_modules(const ModelSpec& model, bool fused);
/// Megatron-LM's names: "decoder.layers.0.self_attention.linear_qkv".
AdapterModules megatron_modules(const ModelSpec& model);

/// Whether `pattern` is the last part of `name`, or matches all of it. "*" matches any text (wildcard_match()
/// of NeMo AutoModel and Megatron-Bridge).
bool matches_module(std::string_view pattern, std::string_view name);

/// The same patterns for PEFT's `names` (peft/tuners/tuners_utils.py, check_target_module_exists): each is
/// the end of a module's name, or a regular expression of groups, alternatives, classes and repetitions.
/// `spellings`: other beginnings of names, and ours.
std::vector<std::string> wildcards_of_peft(const std::vector<std::string>& names, const Json& spellings);

struct AdapterMatch {
  std::vector<AdapterTarget> targets;
  std::vector<AdapterTarget> partly;  // those with some modules left out
};
/// The parts that get adapters if `patterns` choose modules or, with `excludes`, exclude them.
AdapterMatch match_adapters(const AdapterModules& modules, const std::vector<std::string>& patterns,
                            bool excludes = false);

/// The same for a recipe. A model has two spellings of its modules; the one with more matches counts. If `in`
/// has no model yet, a model with all parts is assumed. `excludes` chooses among linear layers only, so never
/// experts.
using NamesOf = AdapterModules (*)(const ModelSpec& model, bool fused);
AdapterMatch match_recipe(const Imported& in, NamesOf names, const std::vector<std::string>& patterns,
                          bool excludes);

/// Sets frozen weights in 4 bits. Refuses a storage type that FSDP would not shard. `section`: that of
/// bitsandbytes' settings; without them scales are quantised again, and the storage type is bfloat16.
void set_weights_in_4_bits(const Settings& recipe, const std::string& section, Imported& in);

/// Sets the parts with adapters, and notes partly chosen ones. `place` and `patterns` are for the error if
/// none is chosen.
void set_adapter_targets(const AdapterMatch& match, const std::vector<std::string>& patterns,
                         const std::string& place, Imported& in);

}  // namespace mpt::frameworks
