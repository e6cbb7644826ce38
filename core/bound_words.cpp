// SPDX-License-Identifier: Apache-2.0
#include "core/bound_words.h"

#include "base/words.h"

namespace mpt {
namespace {

std::string name_of(const char* field) { return option_of(field).substr(2); }

std::string word(int64_t value) { return std::to_string(value); }
std::string word(bool value) { return value ? "on" : "off"; }

using L = Layout;
// The layout's word on each axis; empty: the layout has no such axis.
const std::map<std::string, std::string (*)(const Layout&)> kAxes{
    {"tp", [](const L& l) { return word(l.tensor); }},
    {"sp", [](const L& l) { return l.tensor > 1 ? word(l.sequence_parallel) : ""; }},
    {"cp", [](const L& l) { return word(l.context); }},
    {"cp-method", [](const L& l) { return l.context > 1 ? enum_name(l.context_method) : ""; }},
    {"pp", [](const L& l) { return word(l.pipeline); }},
    {"chunks", [](const L& l) { return word(l.chunks); }},
    {"schedule", [](const L& l) { return l.pipeline > 1 ? l.schedule : ""; }},
    {"dp", [](const L& l) { return word(l.data); }},
    {"zero", [](const L& l) { return l.replicas() > 1 ? word(l.zero) : ""; }},
    {"offload", [](const L& l) { return word(l.offload_optimizer); }},
    {"order", [](const L& l) { return l.pipeline > 1 && l.data > 1 ? enum_name(l.order) : ""; }},
    {"ep", [](const L& l) { return word(l.expert); }},
    {"etp", [](const L& l) { return l.expert > 1 ? word(l.expert_split()) : ""; }},
    {"micro-batch", [](const L& l) { return word(l.micro_batch); }},
    {"recompute", [](const L& l) { return enum_name(l.recompute); }}};

}  // namespace

std::string BoundWords::option() const { return fmt::format("--{} {}", name, joined(values, ",")); }

std::vector<BoundWords> bound_words(const SearchBounds& bounds) {
  std::vector<BoundWords> words;
  for_each_field<SearchBounds>([&](const char* name, auto member, const char*, const FieldRule&) {
    BoundWords bound{name_of(name), {}};
    for (const auto& value : bounds.*member) bound.values.push_back(detail::word_of_element(value));
    if (!bound.values.empty()) words.push_back(std::move(bound));
  });
  return words;
}

std::string options_of(const std::vector<BoundWords>& words) {
  return joined(mapped<std::string>(words, &BoundWords::option), " ");
}

std::vector<std::string> broken_bounds(const SearchBounds& bounds, const Layout& layout) {
  std::vector<std::string> broken;
  for (const BoundWords& bound : bound_words(bounds)) {
    const std::string value = axis_word(bound.name, layout);
    if (!value.empty() && !contains(bound.values, value)) broken.push_back(bound.option());
  }
  return broken;
}

std::string axis_word(const std::string& name, const Layout& layout) { return kAxes.at(name)(layout); }

SearchBounds parse_bounds(const std::string& text, const std::string& where) {
  std::vector<std::string> known;
  for_each_field<SearchBounds>(
      [&](const char* name, auto, const char*, const FieldRule&) { known.push_back(name_of(name)); });
  std::map<std::string, std::vector<std::string>> words;
  for (const std::string& part : split_at(text, ',')) {
    const size_t equals = part.find('=');
    const std::string key = part.substr(0, equals);
    if (equals == std::string::npos || equals + 1 == part.size() || !contains(known, key))
      refuse_input(where, fmt::format("\"{}\"{}", part.substr(0, 40), did_you_mean(key, known)),
                   fmt::format("key=value with a key of {}", joined(known, ", ")), "for example tp=8,pp=4");
    words[key].push_back(part.substr(equals + 1));
  }
  SearchBounds bounds;
  for_each_field<SearchBounds>([&](const char* name, auto member, const char*, const FieldRule& rule) {
    if (const auto* own = find_value(words, name_of(name)))
      set_from_words(bounds.*member, *own, option_of(name), rule);
  });
  return bounds;
}

}  // namespace mpt
