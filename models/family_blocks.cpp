// SPDX-License-Identifier: Apache-2.0

#include <map>

#include "models/family_layers.h"

namespace mpt::models {
namespace {

using Names = std::vector<std::string>;

struct Part {
  const char *mixer, *mlp;
};

// A letter or a word for each layer, each of them one part.
const std::map<std::string, Part>& nemotron_parts() {
  static const std::map<std::string, Part> parts{{"M", {"linear", "none"}},  {"mamba", {"linear", "none"}},
                                                 {"*", {"full", "none"}},    {"attention", {"full", "none"}},
                                                 {"-", {"none", "dense"}},   {"mlp", {"none", "dense"}},
                                                 {"E", {"none", "experts"}}, {"moe", {"none", "experts"}}};
  return parts;
}

Names nemotron_words(Config& c) {
  Names words;
  if (c.has("layers_block_type")) {
    const Json* const list = c.list("layers_block_type");
    for (size_t i = 0; list != nullptr && i < list->size(); ++i)
      words.push_back((*list)[i].is_string() ? (*list)[i].get<std::string>() : "?");
    return words;
  }
  for (const char letter : c.text_or("hybrid_override_pattern", "")) words.emplace_back(1, letter);
  return words;
}

// Attention, if the block has it: so many queries share a key.
void set_block_attention(Config block, const Attention& whole, LayerKind& kind) {
  Config a = block.inner("attention");
  if (a.flag_or("replace_with_linear", false))
    a.refuse("replace_with_linear", "a product in place of attention");
  if (a.flag_or("no_op", false)) return;
  kind.attention = whole;
  kind.attention->kv_heads = whole.heads / std::max<int64_t>(1, a.size("n_heads_in_group"));
}

// An MLP, if the block has it: two thirds of a multiple of the hidden size, rounded up to 256.
void set_block_mlp(Config block, const Mlp& whole, int64_t hidden, LayerKind& kind) {
  Config f = block.inner("ffn");
  if (f.flag_or("replace_with_linear", false))
    f.refuse("replace_with_linear", "a product in place of an MLP");
  if (f.flag_or("no_op", false)) return;
  const auto width = int64_t(2.0 * f.real_or("ffn_mult", 1.0) * double(hidden) / 3.0);
  kind.mlp = whole;
  kind.mlp->ffn_hidden = (width + 255) / 256 * 256;
}

}  // namespace

void nemotron_h(FamilyReader& r, FamilyDraft& d) {
  Config& c = r.config();
  d.mixers.clear();
  d.mlps.clear();
  for (const std::string& word : nemotron_words(c)) {
    const auto part = nemotron_parts().find(word);
    if (part == nemotron_parts().end()) {
      c.refuse(c.has("layers_block_type") ? "layers_block_type" : "hybrid_override_pattern",
               "a layer of kind \"" + word.substr(0, 40) + "\"");
      break;
    }
    d.mixers.emplace_back(part->second.mixer);
    d.mlps.emplace_back(part->second.mlp);
  }
  if (d.mixers.empty() && !c.failed())
    c.add("hybrid_override_pattern", "missing", "a letter for each layer, or layers_block_type");
  if (d.has_mixer("linear")) d.linear = r.linear();
  for (const std::string& mlp : d.mlps) {
    if (mlp == "experts" && !d.moe) d.moe = r.experts(*d.mlp);
  }
}

void nemotron_nas(FamilyReader& r, FamilyDraft& d) {
  Config& c = r.config();
  const Json* const blocks = c.list("block_configs");
  const auto layers = int64_t(d.mixers.size());
  if (blocks == nullptr || int64_t(blocks->size()) != layers)
    return c.add("block_configs", blocks == nullptr ? "missing" : fmt::format("{} entries", blocks->size()),
                 fmt::format("one for each of {} layers", layers));
  d.made = LayerList::of(layers, [&](int64_t l) {
    LayerKind kind;
    const Config block = c.element("block_configs", size_t(l));
    set_block_attention(block, d.full, kind);
    set_block_mlp(block, *d.mlp, d.model.hidden, kind);
    return kind;
  });
}

}  // namespace mpt::models
