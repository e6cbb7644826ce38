// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which parts of a model get adapters, where a framework chooses its linear layers by patterns of their
// names.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model_spec.h"
#include "core/training.h"
#include "frameworks/import.h"
#include "frameworks/readers/settings.h"

namespace mpt::frameworks {

/// Names of the decoder's linear layers, and what gets adapters with each.
using AdapterModules = std::vector<std::pair<std::string, AdapterTarget>>;

/// As Hugging Face's models name them: "model.layers.0.self_attn.q_proj". `fused`: of models that have one
/// product for queries, keys and values, and one for both halves of a gated MLP.
AdapterModules hugging_face_modules(const ModelSpec& model, bool fused);
/// As Megatron-LM's models do: "decoder.layers.0.self_attention.linear_qkv".
AdapterModules megatron_modules(const ModelSpec& model);

/// Whether `pattern` is the last part of `name`, or matches all of it, where "*" is any text
/// (wildcard_match() of NeMo AutoModel and Megatron-Bridge).
bool matches_module(std::string_view pattern, std::string_view name);

struct AdapterMatch {
  std::vector<AdapterTarget> targets;
  std::vector<AdapterTarget> partly;  // those of which some modules get none
};
/// What gets adapters if modules that `patterns` name do, or with `excludes` all others.
AdapterMatch match_adapters(const AdapterModules& modules, const std::vector<std::string>& patterns,
                            bool excludes = false);

/// The same for a recipe. Of a model's two spellings, the one that matches more counts. If `in` has no model
/// yet, it is taken as one with all parts. `excludes` chooses among linear layers, and experts are none.
using NamesOf = AdapterModules (*)(const ModelSpec& model, bool fused);
AdapterMatch match_recipe(const Imported& in, NamesOf names, const std::vector<std::string>& patterns,
                          bool excludes);

/// Frozen weights in 4 bits. Refuses ones that FSDP would not shard. `storage`: the key of the type that they
/// are packed in, which the recipe's program takes as bfloat16 where it is missing.
void set_weights_in_4_bits(const Settings& recipe, const char* storage, Imported& in);

/// Sets what gets adapters, with a note for parts. `place` and `patterns` are for the error if nothing does.
void set_adapter_targets(const AdapterMatch& match, const std::vector<std::string>& patterns,
                         const std::string& place, Imported& in);

}  // namespace mpt::frameworks
