// SPDX-License-Identifier: Apache-2.0
#include "models/family_layers.h"

#include <algorithm>
#include <cstdlib>
#include <set>

namespace mpt::models {
namespace {

using Names = std::vector<std::string>;

struct Entry {
  Config object;
  std::string key;
};

// The first of the keys that the file has; "a/b" is b of the object a.
std::optional<Entry> first_of(Config& config, const Names& keys) {
  for (const std::string& path : keys) {
    Config object = config;
    std::string rest = path;
    for (size_t slash = rest.find('/'); slash != std::string::npos; slash = rest.find('/')) {
      object = object.inner(rest.substr(0, slash).c_str());
      rest = rest.substr(slash + 1);
    }
    if (!rest.empty() && object.has(rest.c_str())) return Entry{object, rest};
  }
  return std::nullopt;
}

std::string text_of(const Json& entry) {
  return entry.is_string()    ? entry.get<std::string>()
         : entry.is_boolean() ? (entry.get<bool>() ? "1" : "0")
                              : entry.dump();
}

// One word or number for each layer; nothing where the file has no such list.
std::optional<Names> listed(Config& config, const LayerRule& rule, int64_t layers) {
  auto entry = first_of(config, rule.list);
  if (!entry) return std::nullopt;
  const Json* const list = entry->object.list(entry->key.c_str());
  if (list == nullptr) return std::nullopt;
  const auto count = int64_t(list->size());
  if (count != layers && !(rule.longer && count > layers)) {
    entry->object.add(entry->key.c_str(), fmt::format("{} entries for {} layers", count, layers),
                      "one per layer");
    return std::nullopt;
  }
  Names names;
  for (int64_t l = 0; l < layers; ++l) {
    const auto known = rule.words.find(text_of((*list)[size_t(l)]));
    if (known == rule.words.end()) {
      entry->object.refuse(entry->key.c_str(),
                           "a layer of kind " + detail::describe_json((*list)[size_t(l)]));
      return std::nullopt;
    }
    names.push_back(known->second);
  }
  return names;
}

// Layers by number, which a list or a text has.
std::optional<std::set<int64_t>> numbered(Config& config, const Names& lists, const Names& texts,
                                          int64_t first) {
  std::set<int64_t> layers;
  if (auto entry = first_of(config, lists)) {
    const Json* const list = entry->object.list(entry->key.c_str());
    if (list == nullptr) return std::nullopt;
    for (const Json& layer : *list) {
      if (layer.is_number_integer()) layers.insert(layer.get<int64_t>() - first);
    }
    return layers;
  }
  auto entry = first_of(config, texts);
  if (!entry) return std::nullopt;
  const std::string text = entry->object.text_or(entry->key.c_str(), "");
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    layers.insert(std::atoll(text.substr(at, end - at).c_str()));
    at = end + 1;
  }
  return layers;
}

int64_t number_of(Config& config, const Names& keys, int64_t otherwise) {
  auto entry = first_of(config, keys);
  return entry ? entry->object.count_or(entry->key.c_str(), otherwise) : otherwise;
}

bool one_is_true(Config& config, const Names& keys) {
  auto entry = first_of(config, keys);
  return entry && entry->object.flag_or(entry->key.c_str(), false);
}

Names mixers_of(FamilyReader& reader, int64_t layers) {
  const LayerRule& rule = reader.family().mixers;
  Config& c = reader.config();
  const std::string others = rule.others.empty() ? "full" : rule.others;
  if (one_is_true(c, rule.refuse))
    c.refuse(rule.refuse.front().c_str(), "a window whose layers differ between versions of the class");
  if (!rule.condition.empty() && !one_is_true(c, rule.condition)) return Names(size_t(layers), "full");
  if (auto names = listed(c, rule, layers)) return *names;
  Names names(size_t(layers), others);
  if (auto chosen = numbered(c, rule.indices, {}, 0)) {
    for (const int64_t l : *chosen) {
      if (l >= 0 && l < layers) names[size_t(l)] = rule.at_indices;
    }
  } else if (auto from_one = numbered(c, rule.indices_from_one, {}, 1)) {
    for (const int64_t l : *from_one) {
      if (l >= 0 && l < layers) names[size_t(l)] = rule.at_indices;
    }
  } else if (const int64_t period = number_of(c, rule.every, rule.period); period > 0) {
    for (int64_t l = 0; l < layers; ++l) {
      const int64_t place = rule.from_top ? layers - l - 1 : l + 1;
      if (place % period == 0) names[size_t(l)] = rule.at_period;
    }
  } else if (!rule.from.empty()) {
    for (int64_t l = number_of(c, rule.from, reader.count("window_from")); l < layers; ++l)
      names[size_t(l)] = "window";
  }
  return names;
}

Names mlps_of(FamilyReader& reader, int64_t layers) {
  const LayerRule& rule = reader.family().experts;
  Config& c = reader.config();
  if (auto names = listed(c, rule, layers)) return *names;
  Names names(size_t(layers), "dense");
  const auto chosen = numbered(c, rule.indices, rule.numbers_in_text, 0);
  const auto except = numbered(c, rule.except, {}, 0).value_or(std::set<int64_t>{});
  const int64_t from = number_of(c, rule.from, reader.count("leading_dense"));
  const int64_t until = number_of(c, rule.until, layers - 1);
  const int64_t interval = std::max<int64_t>(1, number_of(c, rule.interval, 1));
  const int64_t modulo = std::max<int64_t>(1, number_of(c, rule.modulo, 1));
  const int64_t every = std::max<int64_t>(1, number_of(c, rule.every, 1));
  for (int64_t l = 0; l < layers; ++l) {
    const bool by_rule = l >= from && l <= until && (l - from + 1) % interval == 0 && l % modulo == 0 &&
                         (l + 1) % every == 0 && !except.contains(l);
    if (chosen ? chosen->contains(l) : by_rule) names[size_t(l)] = "experts";
  }
  return names;
}

bool has(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

AttentionIndex index_of(FamilyReader& reader, bool shared) {
  AttentionIndex i;
  i.heads = reader.size("index_heads");
  i.head_dim = reader.size("index_dim");
  i.chosen = reader.size("index_chosen");
  i.block = std::max<int64_t>(1, reader.count("index_block"));
  i.shared = shared;
  return i;
}

}  // namespace

bool FamilyDraft::has_mixer(const std::string& name) const { return has(mixers, name); }

FamilyDraft draft_of(FamilyReader& reader, int64_t layers) {
  FamilyDraft d;
  d.model = reader.model();
  d.mixers = mixers_of(reader, layers);
  d.full = reader.attention();
  d.window = reader.window_attention(d.full);
  if (d.has_mixer("linear") || d.has_mixer("both")) d.linear = reader.linear();
  d.mlp = reader.mlp();
  // A family with experts has none where it names 0 for files that say nothing.
  const auto named = reader.family().numbers.find("experts");
  const bool none = named != reader.family().numbers.end() && named->second == 0.0 && !reader.says("experts");
  const bool experts = reader.family().keys.contains("experts") && !none;
  d.mlps = experts ? mlps_of(reader, layers) : Names(size_t(layers), "dense");
  if (has(d.mlps, "experts")) d.moe = reader.experts(*d.mlp);
  d.full_without_rotary = reader.flag("full_without_rotary");
  d.dense_beside_experts = reader.flag("dense_beside_experts");
  return d;
}

LayerKind kind_of(FamilyReader& reader, const FamilyDraft& d, int64_t l) {
  const std::string &mixer = d.mixers[size_t(l)], &mlp = d.mlps[size_t(l)];
  LayerKind kind;
  if (mixer == "linear" || mixer == "both") kind.linear = d.linear;
  if (mixer == "convolution") kind.convolution = ShortConvolution{reader.size("convolution")};
  if (mixer == "window") kind.attention = d.window;
  if (mixer == "window" && reader.says("max_positions") && d.window.window &&
      *d.window.window >= d.model.max_positions)
    kind.attention->window.reset();
  if (has({"full", "rotary", "chunk", "sparse", "sparse_shared", "both"}, mixer)) kind.attention = d.full;
  if (mixer == "full" && d.full_without_rotary) kind.attention->rotary.reset();
  if (mixer == "chunk") kind.attention->chunk = reader.size("chunk");
  if (mixer.starts_with("sparse")) kind.attention->index = index_of(reader, mixer == "sparse_shared");
  if (mlp == "dense" || (mlp == "experts" && d.dense_beside_experts)) kind.mlp = d.mlp;
  if (mlp == "experts") kind.moe = d.moe;
  if (l + d.borrowers < int64_t(d.mixers.size())) return kind;
  if (kind.attention) kind.attention->borrows_keys = true;
  if (kind.mlp && d.borrowers_are_wide) kind.mlp->ffn_hidden *= 2;
  return kind;
}

LayerList layers_of(FamilyReader& reader, const FamilyDraft& d) {
  if (d.made) return *d.made;
  return LayerList::of(int64_t(d.mixers.size()), [&](int64_t l) { return kind_of(reader, d, l); });
}

}  // namespace mpt::models
