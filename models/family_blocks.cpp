// SPDX-License-Identifier: Apache-2.0

#include <map>

#include "models/family_files.h"

namespace mpt::models {
namespace {

using Names = std::vector<std::string>;

struct Part {
  const char *mixer, *mlp;
};

// The part of a layer by its letter or word. Each layer is one part.
const std::map<std::string, Part>& nemotron_parts() {
  static const std::map<std::string, Part> parts{
      {"M", {"linear", "none"}},   {"mamba", {"linear", "none"}},   {"linear_attention", {"linear", "none"}},
      {"*", {"full", "none"}},     {"attention", {"full", "none"}}, {"full_attention", {"full", "none"}},
      {"-", {"none", "dense"}},    {"mlp", {"none", "dense"}},      {"E", {"none", "experts"}},
      {"moe", {"none", "experts"}}};
  return parts;
}

Names layer_words(Config& c, const char* list_key, const char* pattern_key) {
  Names words;
  if (c.has(list_key)) {
    const Json* const list = c.list(list_key);
    for (size_t i = 0; list != nullptr && i < list->size(); ++i)
      words.push_back((*list)[i].is_string() ? (*list)[i].get<std::string>() : "?");
    return words;
  }
  for (const char letter : c.text_or(pattern_key, "")) words.emplace_back(1, letter);
  return words;
}

// Notes the modules that are left out. A ModelSpec has next-token modules only of the last layer's kind.
void tell_left_out_modules(Config& c, const ModelDraft& d) {
  if (d.model.next_token_layers == 0 || d.mixers.empty()) return;
  for (const std::string& word : layer_words(c, "mtp_layers_block_type", "mtp_hybrid_override_pattern")) {
    const auto part = nemotron_parts().find(word);
    if (part == nemotron_parts().end() || part->second.mixer != d.mixers.back() ||
        part->second.mlp != d.mlps.back())
      c.tell(
          fmt::format("the part \"{}\" of next-token modules is left out: a plan has only one of the last "
                      "layer's kind in each",
                      word.substr(0, 40)));
  }
}

// Sets attention if the block has it. The file gives the number of queries per key.
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

// The number of tokens per entry of each layer: 0, or the file's value for the layer's kind. Old files have
// numbers, with one more for each next-token layer.
std::vector<int64_t> entry_ratios(Config& c, int64_t layers) {
  Config rates = c.inner("compress_rates");
  const std::map<std::string, int64_t> by_word{
      {"sliding_attention", 0},
      {"compressed_sparse_attention", rates.size_or("compressed_sparse_attention", 4)},
      {"heavily_compressed_attention", rates.size_or("heavily_compressed_attention", 128)}};
  const char* const key = c.has("layer_types") ? "layer_types" : "compress_ratios";
  const Json* const list = c.list(key);
  std::vector<int64_t> ratios;
  if (list == nullptr || int64_t(list->size()) < layers) {
    c.add(key, list == nullptr ? "missing" : fmt::format("{} entries", list->size()),
          fmt::format("one for each of {} layers", layers));
    return std::vector<int64_t>(size_t(layers), 0);
  }
  for (int64_t l = 0; l < layers; ++l) {
    const Json& entry = (*list)[size_t(l)];
    const auto word = entry.is_string() ? by_word.find(entry.get<std::string>()) : by_word.end();
    if (word != by_word.end()) {
      ratios.push_back(word->second);
    } else if (entry.is_number_integer() && entry.get<double>() >= 0.0 && entry.get<double>() <= 1e6) {
      ratios.push_back(entry.get<int64_t>());
    } else {
      c.refuse(key, "a layer of kind " + detail::describe_json(entry));
      ratios.push_back(0);
    }
  }
  return ratios;
}

// Layers with few tokens per entry choose entries by an index. Each of these pools twice that number.
void read_deepseek_v4(FamilyReader& r, ModelDraft& d) {
  Config& c = r.config();
  const auto layers = int64_t(d.mixers.size());
  const std::vector<int64_t> ratios = entry_ratios(c, layers);
  const Json* const mlps = c.has("mlp_layer_types") ? c.list("mlp_layer_types") : nullptr;
  const int64_t hashed = mlps != nullptr ? 0 : c.count_or("num_hash_layers", 3);
  const int64_t sparse = c.inner("compress_rates").size_or("compressed_sparse_attention", 4);
  CompressedAttention form;
  form.query_rank = c.size_or("q_lora_rank", 1024);
  form.output_groups = c.size_or("o_groups", 8);
  form.output_rank = c.size_or("o_lora_rank", 1024);
  AttentionIndex index;
  index.heads = r.size_of(Value::index_heads);
  index.head_dim = r.size_of(Value::index_dim);
  index.chosen = r.size_of(Value::index_chosen);
  d.made = LayerList::of(layers, [&](int64_t l) {
    LayerKind kind;
    kind.attention = d.window;
    kind.attention->compressed = form;
    kind.attention->compressed->ratio = ratios[size_t(l)];
    if (ratios[size_t(l)] == sparse) {
      kind.attention->compressed->overlapping = true;
      kind.attention->index = index;
    }
    if (kind.attention->rotary && ratios[size_t(l)] > 0)
      kind.attention->rotary->base = c.real_or("compress_rope_theta", 160000.0);
    kind.moe = d.moe;
    const bool by_table = mlps != nullptr && size_t(l) < mlps->size() && (*mlps)[size_t(l)] == "hash_moe";
    kind.moe->hashed = l < hashed || by_table;
    if (kind.moe->hashed) kind.moe->router_bias = false;
    return kind;
  });
}

// The class's word for a layer, from its number of tokens per entry.
const char* compression_word(const Attention& a) {
  if (a.compressed->ratio == 0) return "sliding_attention";
  return a.index ? "compressed_sparse_attention" : "heavily_compressed_attention";
}

void write_deepseek_v4(FamilyWriter& w, ModelDraft& d) {
  const ModelSpec& m = w.model();
  Json types = Json::array(), mlps = Json::array();
  for (int64_t l = 0; l < m.layers.count(); ++l) {
    const LayerKind& kind = m.layers[l];
    if (!kind.attention || !kind.attention->compressed || !kind.moe) return;
    types.push_back(compression_word(*kind.attention));
    mlps.push_back(kind.moe->hashed ? "hash_moe" : "moe");
  }
  w.put("layer_types", types);
  w.put("mlp_layer_types", mlps);
  // Layers with the window alone have the base of all others.
  for (const auto& [name, kind] : m.layers.kinds) {
    const Attention& a = *kind.attention;
    if (a.compressed->ratio == 0 && a.rotary) d.full.rotary = a.rotary;
    if (!kind.moe->hashed) d.moe = kind.moe;
    if (a.compressed->ratio > 0)
      w.put(std::string("compress_rates/") + compression_word(a), a.compressed->ratio);
    if (a.compressed->ratio > 0 && a.rotary) w.put("compress_rope_theta", a.rotary->base);
    if (!a.index) continue;
    w.put(Value::index_heads, a.index->heads);
    w.put(Value::index_dim, a.index->head_dim);
    w.put(Value::index_chosen, a.index->chosen);
  }
  w.put("compress_rates/compressed_sparse_attention", 4);
  w.put("compress_rates/heavily_compressed_attention", 128);
  const CompressedAttention& form = *m.layers[0].attention->compressed;
  w.put("q_lora_rank", form.query_rank);
  w.put("o_groups", form.output_groups);
  w.put("o_lora_rank", form.output_rank);
}

void read_nemotron_h(FamilyReader& r, ModelDraft& d) {
  Config& c = r.config();
  d.mixers.clear();
  d.mlps.clear();
  for (const std::string& word : layer_words(c, "layers_block_type", "hybrid_override_pattern")) {
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
  visit_other_mixers(r, d);
  visit_experts(r, d);
  tell_left_out_modules(c, d);
}

void write_nemotron_h(FamilyWriter& w, ModelDraft& d) {
  std::string pattern;
  for (size_t l = 0; l < d.mixers.size(); ++l) {
    const auto& parts = nemotron_parts();
    const auto part = find_if(parts, [&](const auto& known) {
      return known.first.size() == 1 && known.second.mixer == d.mixers[l] && known.second.mlp == d.mlps[l];
    });
    if (part == parts.end()) return;
    pattern += part->first;
  }
  w.put("hybrid_override_pattern", pattern);
}

void read_nemotron_nas(FamilyReader& r, ModelDraft& d) {
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

void write_nemotron_nas(FamilyWriter& w, ModelDraft& d) {
  const ModelSpec& m = w.model();
  Json blocks = Json::array();
  for (int64_t l = 0; l < m.layers.count(); ++l) {
    const LayerKind& kind = m.layers[l];
    Json attention{{"no_op", true}}, mlp{{"no_op", true}};
    if (kind.attention)
      attention = {
          {"n_heads_in_group", kind.attention->heads / std::max<int64_t>(1, kind.attention->kv_heads)}};
    // Rounded up to 256 it is the width again.
    if (kind.mlp) mlp = {{"ffn_mult", 1.5 * double(kind.mlp->ffn_hidden) / double(m.hidden)}};
    blocks.push_back({{"attention", attention}, {"ffn", mlp}});
  }
  w.put("block_configs", blocks);
  if (d.mlp) d.mlp->ffn_hidden = 1;
}

}  // namespace

FamilyCode deepseek_v4() { return {read_deepseek_v4, write_deepseek_v4}; }
FamilyCode nemotron_h() { return {read_nemotron_h, write_nemotron_h}; }
FamilyCode nemotron_nas() { return {read_nemotron_nas, write_nemotron_nas}; }

}  // namespace mpt::models
