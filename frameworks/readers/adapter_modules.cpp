// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/adapter_modules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/text.h"

namespace mpt::frameworks {
namespace {

using T = AdapterTarget;

using Names = std::vector<const char*>;

struct LayerNames {
  std::string prefix;
  AdapterModules& modules;

  void add(std::string_view part, const Names& names, AdapterTarget target) {
    for (const char* name : names) modules.emplace_back(fmt::format("{}{}{}", prefix, part, name), target);
  }
};

// Qwen3-Next's names of linear attention, or Qwen3.5's; NeMo AutoModel's names of DeepSeek-V4, or
// transformers'.
void add_mixers(const LayerKind& kind, bool fused, LayerNames& layer) {
  const std::string self = "self_attn.", linear = "linear_attn.";
  const bool compressed = kind.attention && kind.attention->compressed;
  if (kind.attention && kind.attention->latent) {
    const bool ranks = kind.attention->latent->query_rank > 0;
    layer.add(self, ranks ? Names{"q_a_proj", "q_b_proj"} : Names{"q_proj"}, T::qkv);
    layer.add(self, {"kv_a_proj_with_mqa", "kv_b_proj"}, T::qkv);
  } else if (compressed) {
    layer.add(self, fused ? Names{"wq_a", "wq_b", "wkv"} : Names{"q_a_proj", "q_b_proj", "kv_proj"}, T::qkv);
    layer.add(self, fused ? Names{"wo_a", "wo_b"} : Names{"o_a_proj", "o_b_proj"}, T::output);
  } else if (kind.attention) {
    layer.add(self, fused ? Names{"qkv_proj"} : Names{"q_proj", "k_proj", "v_proj"}, T::qkv);
  }
  if (kind.attention && !compressed) layer.add(self, {"o_proj"}, T::output);
  if (!kind.linear) return;
  if (fused) layer.add(linear, {"in_proj_qkvz", "in_proj_ba"}, T::qkv);
  if (!fused) layer.add(linear, {"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"}, T::qkv);
  layer.add(linear, {"out_proj"}, T::output);
}

void add_mlp(std::string_view part, const Mlp& mlp, bool fused, LayerNames& layer) {
  const bool one = fused && mlp.gated;
  if (one) layer.add(part, {"gate_up_proj"}, T::up);
  if (!one) layer.add(part, mlp.gated ? Names{"gate_proj", "up_proj"} : Names{"up_proj"}, T::up);
  layer.add(part, {"down_proj"}, T::down);
}

void add_megatron_mlp(std::string_view part, LayerNames& layer) {
  layer.add(part, {"linear_fc1"}, T::up);
  layer.add(part, {"linear_fc2"}, T::down);
}

// Blanks and the signs of regular expressions other than "." and "*".
bool is_plain(std::string_view pattern) {
  return pattern.find_first_of("?[](){}+|\\^$ ") == std::string_view::npos;
}

// "*" matches any text. If the rest does not match, the last "*" takes one more letter.
bool fits(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, from = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// ".*" is the same as "*" there.
std::string without_dots(std::string_view pattern) {
  std::string plain;
  for (const char c : pattern) {
    if (c == '*' && !plain.empty() && plain.back() == '.') plain.pop_back();
    plain += c;
  }
  return plain;
}

// The model of `in`. If it is not known yet: models that together have all module names.
std::vector<ModelSpec> models_of(const Imported& in) {
  if (in.model) return {*in.model};
  ModelSpec plain, latent;
  LayerKind kind;
  kind.attention = Attention{};
  kind.mlp = Mlp{.gated = true};
  plain.layers = LayerList(1, kind);
  kind.attention->latent = LatentAttention{.query_rank = 1};
  kind.moe = MixtureOfExperts{.expert = *kind.mlp, .shared_ffn_hidden = 1};
  latent.layers = LayerList(1, kind);
  return {plain, latent};
}

}  // namespace

AdapterModules hugging_face_modules(const ModelSpec& model, bool fused) {
  AdapterModules modules;
  for (int64_t l = 0; l < model.layers.count(); ++l) {
    const LayerKind& kind = model.layers[l];
    LayerNames layer{fmt::format("model.layers.{}.", l), modules};
    add_mixers(kind, fused, layer);
    if (kind.mlp) add_mlp("mlp.", *kind.mlp, fused, layer);
    if (!kind.moe) continue;
    layer.add("mlp.", {"experts"}, T::experts);
    if (kind.moe->shared_ffn_hidden > 0) add_mlp("mlp.shared_experts.", kind.moe->expert, fused, layer);
  }
  return modules;
}

AdapterModules megatron_modules(const ModelSpec& model) {
  AdapterModules modules;
  for (int64_t l = 0; l < model.layers.count(); ++l) {
    const LayerKind& kind = model.layers[l];
    LayerNames layer{fmt::format("decoder.layers.{}.", l), modules};
    const std::string self = "self_attention.";
    if (kind.attention && kind.attention->latent) {
      const bool ranks = kind.attention->latent->query_rank > 0;
      layer.add(self, ranks ? Names{"linear_q_down_proj", "linear_q_up_proj"} : Names{"linear_q_proj"},
                T::qkv);
      layer.add(self, {"linear_kv_down_proj", "linear_kv_up_proj"}, T::qkv);
    } else if (kind.attention) {
      layer.add(self, {"linear_qkv"}, T::qkv);
    }
    if (kind.attention) layer.add(self, {"linear_proj"}, T::output);
    if (kind.linear) layer.add(self, {"in_proj"}, T::qkv);
    if (kind.linear) layer.add(self, {"out_proj"}, T::output);
    if (kind.mlp) add_megatron_mlp("mlp.", layer);
    if (!kind.moe) continue;
    layer.add("mlp.experts.", {"linear_fc1", "linear_fc2"}, T::experts);
    if (kind.moe->shared_ffn_hidden > 0) add_megatron_mlp("mlp.shared_experts.", layer);
  }
  return modules;
}

bool matches_module(std::string_view pattern, std::string_view name) {
  return name.substr(name.rfind('.') + 1) == pattern ||
         (is_plain(pattern) && fits(without_dots(pattern), name));
}

AdapterMatch match_adapters(const AdapterModules& modules, const std::vector<std::string>& patterns,
                            bool excludes) {
  AdapterMatch match;
  for (const auto& [target, target_name] : EnumNames<AdapterTarget>::table()) {
    int64_t all = 0, got = 0;
    for (const auto& [name, of] : modules) {
      if (of != target) continue;
      const bool named =
          any_of(patterns, [&, &module = name](const std::string& p) { return matches_module(p, module); });
      ++all;
      got += named != excludes ? 1 : 0;
    }
    if (got > 0) match.targets.push_back(target);
    if (got > 0 && got < all) match.partly.push_back(target);
  }
  return match;
}

AdapterMatch match_recipe(const Imported& in, NamesOf names, const std::vector<std::string>& patterns,
                          bool excludes) {
  AdapterMatch best;
  for (const ModelSpec& model : models_of(in)) {
    for (const bool fused : {false, true}) {
      AdapterModules modules = names(model, fused);
      if (excludes) std::erase_if(modules, [](const auto& module) { return module.second == T::experts; });
      AdapterMatch match = match_adapters(modules, patterns, excludes);
      if (match.targets.size() > best.targets.size()) best = std::move(match);
    }
  }
  if (!in.model) best.partly.clear();
  return best;
}

// FSDP2 cannot shard weights of integer types: accelerate 1.15.0 leaves them out
// (accelerate/utils/fsdp_utils.py).
void set_weights_in_4_bits(const Settings& recipe, const char* storage, Imported& in) {
  in.layout.training.frozen_format = FrozenFormat::nf4;
  std::string type = recipe.text(storage, "bfloat16");
  type = type.substr(type.rfind('.') + 1);
  if (in.layout.zero < 2 || in.framework == "transformers-deepspeed" || type.starts_with("float") ||
      type == "bfloat16")
    return;
  throw UserError(Problem{recipe.at(storage), fmt::format("\"{}\"", cut_text(type, 40)),
                          "bfloat16: FSDP leaves 4-bit weights of another type whole on each GPU",
                          "set it to bfloat16"});
}

void set_adapter_targets(const AdapterMatch& match, const std::vector<std::string>& patterns,
                         const std::string& place, Imported& in) {
  if (match.targets.empty()) {
    throw UserError(Problem{place,
                            fmt::format("adapters on {}, which no linear layer of this decoder is",
                                        cut_text(fmt::format("{}", fmt::join(patterns, ", ")), 60)),
                            "names or patterns of layers, where * stands for anything",
                            "correct the patterns, or remove the adapters in a copy of the file to price "
                            "full training"});
  }
  in.layout.training.adapter_targets = match.targets;
  for (const AdapterTarget target : match.partly)
    in.notes.push_back(fmt::format("adapters on a part of {}: priced as on all of it", enum_name(target)));
}

}  // namespace mpt::frameworks
