// SPDX-License-Identifier: Apache-2.0
#include "models/family_files.h"

#include <cctype>

namespace mpt::models {
namespace {

using Names = std::vector<std::string>;

std::string text_of(const Json& entry) {
  return entry.is_string()    ? entry.get<std::string>()
         : entry.is_boolean() ? (entry.get<bool>() ? "1" : "0")
                              : entry.dump();
}

// One word or number for each layer; nothing if the file has no such list.
std::optional<Names> listed(Config& config, const LayerRule& rule, int64_t layers) {
  auto entry = find_key(config, rule.list);
  if (!entry) return std::nullopt;
  const Json* const list = entry->object.list(entry->key.c_str());
  if (list == nullptr) return std::nullopt;
  if (const auto count = int64_t(list->size()); count != layers && !(rule.longer && count > layers)) {
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

// The layers that a list or a text gives by number.
std::optional<std::set<int64_t>> numbered(Config& config, const Names& lists, const Names& texts,
                                          int64_t first) {
  std::set<int64_t> layers;
  if (auto entry = find_key(config, lists)) {
    const Json* const list = entry->object.list(entry->key.c_str());
    if (list == nullptr) return std::nullopt;
    for (const Json& one : *list)
      if (one.is_number_integer()) layers.insert(one.get<int64_t>() - first);
    return layers;
  }
  auto entry = find_key(config, texts);
  if (!entry) return std::nullopt;
  const std::string text = entry->object.text_or(entry->key.c_str(), "");
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    layers.insert(std::atoll(text.substr(at, end - at).c_str()));
    at = end + 1;
  }
  return layers;
}

int64_t number_in(Config& config, const Names& keys, int64_t otherwise) {
  auto entry = find_key(config, keys);
  return entry ? entry->object.count_or(entry->key.c_str(), otherwise) : otherwise;
}

bool one_is_true(Config& config, const Names& keys) {
  auto entry = find_key(config, keys);
  return entry && entry->object.flag_or(entry->key.c_str(), false);
}

// Layers with experts: between a first and a last one, at intervals.
struct ExpertLayers {
  int64_t from = 0, until = 0, interval = 1, modulo = 1, every = 1;

  bool has(int64_t l) const {
    return l >= from && l <= until && (l - from + 1) % interval == 0 && l % modulo == 0 &&
           (l + 1) % every == 0;
  }
};

// Entries of a list that the rule reads as these words; nothing if it has no entry for one.
std::optional<Json> entries_of(const LayerRule& rule, const Names& names) {
  Json list = Json::array();
  for (const std::string& name : names) {
    std::optional<Json> found;
    for (const auto& [entry, word] : rule.words) {
      const bool number = std::isdigit(static_cast<unsigned char>(entry.front())) != 0;
      if (word == name && (!found || number == rule.numbers))
        found = number ? Json(std::atoll(entry.c_str())) : Json(entry);
    }
    if (!found) return std::nullopt;
    list.push_back(*found);
  }
  return list;
}

Json places_of(const Names& names, const std::string& name, int64_t first) {
  Json places = Json::array();
  for (size_t l = 0; l < names.size(); ++l)
    if (names[l] == name) places.push_back(int64_t(l) + first);
  return places;
}

// Intervals that give these words. Each of the rule's intervals alone comes first, up to eight layers.
std::optional<ExpertLayers> intervals_of(const LayerRule& rule, const Names& mlps, int64_t from, bool all) {
  const auto holds = [&](const ExpertLayers& tried) {
    for (size_t l = 0; l < mlps.size(); ++l) {
      const bool experts = mlps[l] == "experts";
      if (tried.has(int64_t(l)) != experts && (all || experts)) return false;
    }
    return true;
  };
  constexpr int64_t kLongest = 8;
  for (int64_t n = 1; n <= kLongest; ++n)
    for (int64_t ExpertLayers::*which :
         {&ExpertLayers::interval, &ExpertLayers::modulo, &ExpertLayers::every}) {
      const Names& keys = which == &ExpertLayers::interval ? rule.interval
                          : which == &ExpertLayers::modulo ? rule.modulo
                                                           : rule.every;
      ExpertLayers tried{from, int64_t(mlps.size()) - 1, 1, 1, 1};
      tried.*which = n;
      if ((n == 1 || !keys.empty()) && holds(tried)) return tried;
    }
  return std::nullopt;
}

}  // namespace

Names read_mixers(FamilyReader& reader, int64_t layers) {
  const LayerRule& rule = reader.family().mixers;
  Config& c = reader.config();
  const std::string others = rule.others.empty() ? "full" : rule.others;
  if (!rule.condition.empty() && !one_is_true(c, rule.condition)) return Names(size_t(layers), "full");
  if (auto names = listed(c, rule, layers)) return *names;
  Names names(size_t(layers), others);
  auto chosen = numbered(c, rule.indices, {}, 0);
  if (!chosen) chosen = numbered(c, rule.indices_from_one, {}, 1);
  if (chosen) {
    for (const int64_t l : *chosen)
      if (l >= 0 && l < layers) names[size_t(l)] = rule.at_indices;
  } else if (const int64_t period = number_in(c, rule.every, rule.period); period > 0) {
    for (int64_t l = 0; l < layers; ++l)
      if ((rule.from_top ? layers - l - 1 : l + 1) % period == 0) names[size_t(l)] = rule.at_period;
  } else if (!rule.from.empty()) {
    for (int64_t l = number_in(c, rule.from, reader.count_of(Value::window_from)); l < layers; ++l)
      names[size_t(l)] = "window";
  }
  return names;
}

Names read_mlps(FamilyReader& reader, int64_t layers) {
  const LayerRule& rule = reader.family().experts;
  Config& c = reader.config();
  if (auto names = listed(c, rule, layers)) return *names;
  Names names(size_t(layers), "dense");
  const auto chosen = numbered(c, rule.indices, rule.numbers_in_text, 0);
  const auto except = numbered(c, rule.except, {}, 0).value_or(std::set<int64_t>{});
  const auto period = [&](const Names& keys) { return std::max<int64_t>(1, number_in(c, keys, 1)); };
  const ExpertLayers by_rule{number_in(c, rule.from, reader.count_of(Value::leading_dense)),
                             number_in(c, rule.until, layers - 1), period(rule.interval), period(rule.modulo),
                             period(rule.every)};
  for (int64_t l = 0; l < layers; ++l)
    if (chosen ? chosen->contains(l) : by_rule.has(l) && !except.contains(l)) names[size_t(l)] = "experts";
  return names;
}

void write_mixers(FamilyWriter& w, const Names& mixers) {
  const LayerRule& rule = w.family().mixers;
  const bool windows = contains(mixers, "window");
  if (!rule.condition.empty()) w.put(rule.condition.front(), windows);
  if (!rule.condition.empty() && !windows) return;
  if (!rule.list.empty()) {
    if (const auto list = entries_of(rule, mixers)) w.put(rule.list.front(), *list);
  } else if (!rule.indices.empty()) {
    w.put(rule.indices.front(), places_of(mixers, rule.at_indices, 0));
  } else if (!rule.indices_from_one.empty()) {
    w.put(rule.indices_from_one.front(), places_of(mixers, rule.at_indices, 1));
  }
}

void write_mlps(FamilyWriter& w, const Names& mlps) {
  const LayerRule& rule = w.family().experts;
  if (!rule.list.empty()) {
    if (const auto list = entries_of(rule, mlps)) w.put(rule.list.front(), *list);
    return;
  }
  const Json experts = places_of(mlps, "experts", 0);
  if (!rule.indices.empty()) return w.put(rule.indices.front(), experts);
  if (!rule.numbers_in_text.empty()) {
    const auto numbers = mapped<std::string>(experts, [](const Json& layer) { return layer.dump(); });
    return w.put(rule.numbers_in_text.front(), joined(numbers, ","));
  }
  const auto put_first = [&](const Names& keys, const Json& value) {
    if (!keys.empty()) w.put(keys.front(), value);
  };
  put_first(rule.except, places_of(mlps, "dense", 0));
  const int64_t from = rule.from.empty() || experts.empty() ? 0 : experts.front().get<int64_t>();
  const auto found = intervals_of(rule, mlps, from, rule.except.empty());
  if (!found) return;
  put_first(rule.from, found->from);
  put_first(rule.until, found->until);
  put_first(rule.interval, found->interval);
  put_first(rule.modulo, found->modulo);
  put_first(rule.every, found->every);
}

}  // namespace mpt::models
