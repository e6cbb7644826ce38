// SPDX-License-Identifier: Apache-2.0
#include "models/family.h"

#include <algorithm>
#include <string_view>

#include "base/json.h"
#include "models/family_layers.h"

namespace mpt::models {

const std::vector<std::pair<std::string_view, std::string_view>>& family_files();  // generated

namespace {

using Families = std::map<std::string, Family>;

// A rule is inherited as a whole.
Family inherited(const Families& table, const Json& file, const std::string& type) {
  const Family& own = table.at(type);
  if (own.like.empty()) return own;
  MPT_CHECK(table.contains(own.like), "family {} is like {}, which is none", type, own.like);
  Family whole = inherited(table, file, own.like);
  for (const auto& [name, keys] : own.keys) whole.keys[name] = keys;
  for (const auto& [name, value] : own.numbers) whole.numbers[name] = value;
  for (const auto& [name, word] : own.words) whole.words[name] = word;
  if (file.at(type).contains("mixers")) whole.mixers = own.mixers;
  if (file.at(type).contains("experts")) whole.experts = own.experts;
  if (!own.code.empty()) whole.code = own.code;
  if (!own.architecture.empty()) whole.architecture = own.architecture;
  if (!own.source.empty()) whole.source = own.source;
  whole.also = own.also;
  whole.least_vocab = own.least_vocab;
  whole.weights = own.weights;
  whole.like = own.like;
  return whole;
}

void check_word(const std::string& type, const char* of, const std::string& word,
                const std::vector<std::string>& known) {
  MPT_CHECK(std::find(known.begin(), known.end(), word) != known.end(), "family {} has {} \"{}\"{}", type, of,
            word, did_you_mean(word, known));
}

void check_rule(const std::string& type, const LayerRule& rule, const char* of,
                std::vector<std::string> known) {
  for (const auto& [entry, word] : rule.words) check_word(type, of, word, known);
  for (const std::string* word : {&rule.at_indices, &rule.at_period, &rule.others}) {
    if (!word->empty()) check_word(type, of, *word, known);
  }
}

void check_family(const std::string& type, const Family& family) {
  for (const auto& [value, word] : family.words)
    check_word(type, enum_name(value).c_str(), word, known_words(value));
  check_rule(type, family.mixers, "a mixer",
             {"full", "rotary", "window", "chunk", "sparse", "sparse_shared", "linear", "both", "convolution",
              "none"});
  check_rule(type, family.experts, "an MLP", {"dense", "experts", "none"});
  if (!family.code.empty()) check_word(type, "code", family.code, family_code_names());
}

struct Table {
  Families families;
  std::vector<std::string> types;
};

Table read_families() {
  const auto& [name, text] = family_files().front();
  const Json file = parse_json(std::string(text), std::string(name));
  const auto own = from_json<Families>(file, std::string(name));
  Table table;
  for (const auto& [type, family] : file.items()) {
    table.families[type] = inherited(own, file, type);
    check_family(type, table.families[type]);
    table.types.push_back(type);
  }
  return table;
}

const Table& table() {
  static const Table read = read_families();
  return read;
}

}  // namespace

const Family* find_family(const std::string& type) {
  const auto found = table().families.find(type);
  return found == table().families.end() ? nullptr : &found->second;
}

const std::vector<std::string>& family_types() { return table().types; }

const std::vector<ActivationName>& activation_names() {
  using A = ActivationKind;
  static const std::vector<ActivationName> names{
      {"gelu", A::gelu},           {"gelu_pytorch_tanh", A::gelu_tanh},
      {"gelu_new", A::gelu_tanh},  {"gelu_fast", A::gelu_tanh},
      {"gelu_tanh", A::gelu_tanh}, {"silu", A::silu},
      {"swish", A::silu},          {"swigluoai", A::silu},
      {"relu", A::relu},           {"relu2", A::squared_relu},
      {"xielu", A::xielu},         {"situ", A::situ}};
  return names;
}

std::vector<std::string> known_words(Value value) {
  switch (value) {
    case Value::norm:
      return enum_names<NormKind>();
    case Value::placement:
      return enum_names<NormPlacement>();
    case Value::position:
      return enum_names<PositionKind>();
    case Value::query_key_norm:
      return enum_names<QueryKeyNorm>();
    case Value::gate:
      return enum_names<OutputGate>();
    case Value::linear_kind:
      return enum_names<LinearKind>();
    case Value::router_scores:
      return enum_names<RouterScores>();
    case Value::activation: {
      std::vector<std::string> names;
      for (const ActivationName& activation : activation_names()) names.emplace_back(activation.name);
      return names;
    }
    default:
      return {};
  }
}

}  // namespace mpt::models
