// SPDX-License-Identifier: Apache-2.0

// Megatron-LM: flags of megatron/training/arguments.py and TransformerConfig at core_v0.19.2.
// Megatron-Bridge: fields of GPTModelProvider and MLAModelProvider at v0.6.2.

#include "frameworks/megatron-core/dialect.h"

#include <fmt/ranges.h>

#include <array>

#include "frameworks/readers/expressions.h"

namespace mpt::frameworks {

namespace {

using models::rule_of;
using models::Value;
using models::Values;
using models::Word;
using models::WordSource;

int64_t whole(const Values& values, Value value) { return values.at(value).get<int64_t>(); }
bool is_latent(const Values& values) { return values.at(Value::latent) == Json(true); }

std::vector<int> flags_of(const Values& values, Value value, const char* word) {
  return mapped<int>(values.at(value), [&](const Json& layer) { return layer == word ? 1 : 0; });
}

// Megatron-LM's own default: 4 h, and two thirds of it with SwiGLU.
void read_ffn(const WordSource& w, Values& values) {
  const int64_t hidden = whole(values, Value::hidden);
  const bool quick = w.text("activation-func", "").find("quick") != std::string::npos;
  const bool swiglu = w.has("swiglu") || (w.has("gated-linear-unit") && !quick);
  values[Value::ffn] = w.number("ffn-hidden-size", rule_of(Value::ffn),
                                swiglu ? int64_t(4 * hidden * 2 / 3 / 64) * 64 : 4 * hidden);
}

bool write_ffn(const Values& values, std::vector<Word>& words) {
  words.push_back({"ffn-hidden-size", values.at(Value::ffn)});
  return true;
}

void read_query_groups(const WordSource& w, Values& values) {
  values[Value::kv_heads] = w.has("group-query-attention")
                                ? w.number("num-query-groups", rule_of(Value::kv_heads), 1)
                                : whole(values, Value::heads);
}

bool write_query_groups(const Values& values, std::vector<Word>& words) {
  if (values.at(Value::kv_heads) == values.at(Value::heads)) return true;
  words.push_back({"group-query-attention", true});
  words.push_back({"num-query-groups", values.at(Value::kv_heads)});
  return true;
}

void read_head_dim(const WordSource& w, Values& values) {
  values[Value::head_dim] = w.number("kv-channels", rule_of(Value::head_dim),
                                     whole(values, Value::hidden) / whole(values, Value::heads));
}

// With latent attention Megatron-LM reads only the size of values, but refuses a width that the number of
// heads does not divide.
bool write_head_dim(const Values& values, std::vector<Word>& words) {
  const bool latent = is_latent(values);
  const int64_t size = whole(values, latent ? Value::v_dim : Value::head_dim);
  const bool usual = !latent && size * whole(values, Value::heads) == whole(values, Value::hidden);
  words.push_back({"kv-channels", size, usual});
  return true;
}

constexpr int64_t kMostWindow = 999'999'999;  // the largest that read_window() reads

// `mixer` in the layers that a word marks by 1, or in all but each n-th one. Without the word: all layers.
std::vector<std::string> mixers_but_skipped(const WordSource& w, const std::string& word, const char* mixer,
                                            int64_t layers) {
  const std::string skipped = w.text(word, "None");
  std::vector<std::string> mixers(size_t(layers), mixer);
  if (!w.has(word) || skipped == "None") return mixers;
  if (skipped.find('[') == std::string::npos) {
    const int64_t full = w.number(word, between(1, 1e5), 1);
    for (int64_t l = full - 1; l < layers; l += full) mixers[size_t(l)] = "full";
    return mixers;
  }
  const auto pattern = layer_pattern(skipped);
  if (!pattern || int64_t(pattern->size()) != layers) w.refuse(word, "a number, or 0 or 1 for each layer");
  for (size_t l = 0; l < mixers.size(); ++l) mixers[l] = (*pattern)[l] == 1 ? mixer : "full";
  return mixers;
}

// "127,0": keys to the left of a query's own, and to the right.
void read_window(const WordSource& w, Values& values) {
  const std::string text = w.text("window-size", "None");
  const auto mixers = mixers_but_skipped(w, "window-attn-skip-freq", "window", whole(values, Value::layers));
  if (!w.has("window-size") || text == "None") return;
  int left = -1, right = -1;
  const char* begin = text.c_str() + (text.starts_with('(') || text.starts_with('[') ? 1 : 0);
  if (std::sscanf(begin, "%9d , %9d", &left, &right) != 2 || left < 0 || right != 0)
    w.refuse("window-size", "a causal window, such as 127,0");
  values[Value::window] = int64_t{left} + 1;
  values[Value::mixers] = mixers;
}

bool write_window(const Values& values, std::vector<Word>& words) {
  const std::vector<int> layers = flags_of(values, Value::mixers, "window");
  const bool some = contains(layers, 1);
  const bool all = !contains(layers, 0);
  bool alternating = true;
  for (size_t l = 0; l < layers.size(); ++l) alternating = alternating && layers[l] == (l % 2 == 0 ? 1 : 0);
  words.push_back({"window-size", Json(), true});
  words.push_back({"window-attn-skip-freq", Json(), true});
  if (!some) return true;
  if (whole(values, Value::window) > kMostWindow) return false;
  words[words.size() - 2] = {"window-size", Json{whole(values, Value::window) - 1, 0}};
  if (all) return true;
  words.back() = {"window-attn-skip-freq",
                  alternating ? Json(2) : Json(fmt::format("[{}]", fmt::join(layers, ","))), false, true};
  return true;
}

// A number n means the first of every n layers.
void read_experts(const WordSource& w, Values& values) {
  const int64_t layers = whole(values, Value::layers);
  const std::string text = w.text("moe-layer-freq", "1");
  std::vector<int64_t> experts;
  if (text.find('[') == std::string::npos) {
    const int64_t interval = w.number("moe-layer-freq", between(1, 1e5), 1);
    for (int64_t l = 0; l < layers; ++l) experts.push_back(l % interval == 0 ? 1 : 0);
  } else {
    experts = layer_pattern(text).value_or(std::vector<int64_t>{});
  }
  if (int64_t(experts.size()) != layers)
    w.refuse("moe-layer-freq", "a number, or 0 or 1 for each layer, such as ([0]*3+[1]*58)");
  if (!contains(experts, 1)) w.refuse("moe-layer-freq", "experts in at least one layer");
  Json mlps = Json::array();
  for (const int64_t has : experts) mlps.push_back(has == 1 ? "experts" : "dense");
  values[Value::mlps] = mlps;
}

bool write_experts(const Values& values, std::vector<Word>& words) {
  const std::vector<int> layers = flags_of(values, Value::mlps, "experts");
  const bool all = !contains(layers, 0);
  words.push_back({"moe-layer-freq", fmt::format("[{}]", fmt::join(layers, ",")), all, true});
  return true;
}

void read_balance(const WordSource& w, Values& values) {
  const bool loss = w.text("moe-router-load-balancing-type", "aux_loss").ends_with("aux_loss");
  values[Value::balance_loss] = loss ? w.real("moe-aux-loss-coeff", rule_of(Value::balance_loss), 0.0) : 0.0;
}

// Balances each sequence. With aux_loss a micro-batch is balanced, so its size would change the training.
bool write_balance(const Values& values, std::vector<Word>& words) {
  const bool none = values.at(Value::balance_loss).get<double>() <= 0.0;
  words.push_back({"moe-router-load-balancing-type", none ? "none" : "seq_aux_loss"});
  words.push_back({"moe-aux-loss-coeff", values.at(Value::balance_loss), none});
  return true;
}

// Layers of other mixers than attention.

void read_index(const WordSource& w, Values& values) {
  for (const auto& [value, word] : {std::pair{Value::index_heads, "dsa-indexer-n-heads"},
                                    {Value::index_dim, "dsa-indexer-head-dim"},
                                    {Value::index_chosen, "dsa-indexer-topk"}})
    values[value] = w.required(word, rule_of(value));
}

// One letter per layer. Each layer has a mixer or an MLP, not both
// (megatron/core/models/hybrid/hybrid_layer_allocation.py). "|" ends a stage; next-token layers follow "/".
void read_pattern(const WordSource& w, const std::string& word, Values& values) {
  static constexpr std::string_view kLetters = "MG*+D-E";
  static constexpr std::array kMixers{"linear", "linear", "full", "full", "sparse", "none", "none"};
  std::string pattern = w.text(word, "");
  const int64_t depths = std::count(pattern.begin(), pattern.end(), '/');
  pattern.erase(std::min(pattern.find('/'), pattern.size()));
  std::erase(pattern, '|');
  const auto has = [&](char letter) { return pattern.find(letter) != std::string::npos; };
  Json mixers = Json::array(), mlps = Json::array();
  for (const char letter : pattern) {
    const size_t kind = kLetters.find(letter);
    if (kind >= kMixers.size() || (has('M') && has('G')))
      w.refuse(word, "a letter of M G * + D - E for each layer, and one kind of M and G");
    mixers.push_back(kMixers[kind]);
    mlps.push_back(letter == '-' ? "dense" : letter == 'E' ? "experts" : "none");
  }
  if (has('M') || has('G')) values[Value::linear_kind] = has('M') ? "mamba2" : "gated_delta";
  if (has('M') && !w.has("mamba-num-heads"))  // megatron/core/ssm/mamba_mixer.py
    values[Value::linear_heads] =
        2 * whole(values, Value::hidden) / w.number("mamba-head-dim", rule_of(Value::linear_head_dim), 64);
  if (has('D')) read_index(w, values);
  values[Value::layers] = pattern.size();
  values[Value::mixers] = mixers;
  values[Value::mlps] = mlps;
  if (depths > 0) values[Value::next_token_layers] = depths;
}

void read_mixers(const WordSource& w, Values& values) {
  for (const char* word : {"hybrid-layer-pattern", "hybrid-override-pattern"})
    if (w.has(word) && w.text(word, "None") != "None") return read_pattern(w, word, values);
  const int64_t layers = whole(values, Value::layers);
  const std::string variant = w.text("experimental-attention-variant", "None");
  if (variant == "gated_delta_net") {
    values[Value::linear_kind] = "gated_delta";
    values[Value::mixers] = mixers_but_skipped(w, "linear-attention-freq", "linear", layers);
  } else if (variant == "dsa") {
    read_index(w, values);
    values[Value::mixers] = std::vector<std::string>(size_t(layers), "sparse");
  } else if (variant != "None") {
    w.refuse("experimental-attention-variant", "gated_delta_net or dsa");
  }
}

}  // namespace

models::DialectCodes megatron_codes() {
  return {{"ffn", {read_ffn, write_ffn}},
          {"groups of queries", {read_query_groups, write_query_groups}},
          {"size of a head", {read_head_dim, write_head_dim}},
          {"window", {read_window, write_window}},
          {"layers with experts", {read_experts, write_experts}},
          {"balance loss", {read_balance, write_balance}},
          // No export yet: reading the words back finds other mixers.
          {"mixers", {read_mixers, [](const Values&, std::vector<Word>&) { return true; }}}};
}

}  // namespace mpt::frameworks
