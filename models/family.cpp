// SPDX-License-Identifier: Apache-2.0
#include "models/family.h"

#include <set>

#include "base/json.h"
#include "models/value_map.h"

namespace mpt::models {

const std::vector<std::pair<std::string_view, std::string_view>>& family_files();  // generated

namespace {

constexpr const char* kTableFile = "models/dialects/hugging_face.json";

// The base's values complete the entry's. A rule is inherited as a whole.
Family inherited(Family own, const Family& base, const Json& json) {
  own.keys.insert(base.keys.begin(), base.keys.end());
  own.numbers.insert(base.numbers.begin(), base.numbers.end());
  own.words.insert(base.words.begin(), base.words.end());
  own.refuse.insert(base.refuse.begin(), base.refuse.end());
  if (!json.contains("mixers")) own.mixers = base.mixers;
  if (!json.contains("experts")) own.experts = base.experts;
  if (own.code.empty()) own.code = base.code;
  if (own.architecture.empty()) own.architecture = base.architecture;
  if (own.source.empty()) own.source = base.source;
  return own;
}

// Checks beyond the field lists. Inherited parts are checked in their original entry.
class EntryCheck {
 public:
  EntryCheck(const std::string& type, JsonProblems& problems) : at_("/" + type), problems_(problems) {}

  void check(const Family& f, const Json& json, const std::vector<std::string>& types) {
    if (!f.like.empty()) word("/like", f.like, types, "a type above it, such as ");
    if (!f.code.empty()) word("/code", f.code, family_code_names());
    for (const auto& [value, keys] : f.keys) said("/keys/", value);
    for (const auto& [value, number] : f.numbers) {
      said("/numbers/", value);
      if (!known_words(value).empty())
        add("/numbers/" + enum_name(value), "a number", "a text under \"words\"");
    }
    for (const auto& [value, text] : f.words) {
      said("/words/", value);
      word("/words/" + enum_name(value), text, known_words(value));
    }
    rule("/mixers", f.mixers, known_words(Value::mixers));
    rule("/experts", f.experts, known_words(Value::mlps));
    unused("/mixers", json, {"except", "numbers_in_text", "until", "interval", "modulo"});
    unused("/experts", json,
           {"indices_from_one", "at_indices", "period", "at_period", "if", "others", "from_top"});
  }

 private:
  void add(const std::string& place, const std::string& found, const std::string& expected,
           const std::string& remedy = "") {
    problems_.add(at_ + place, found, expected, remedy);
  }

  void word(const std::string& place, const std::string& text, const std::vector<std::string>& known,
            const char* expected = "one of ") {
    if (contains(known, text)) return;
    const std::string meant = nearest_name(text, known);
    if (known.empty()) return add(place, "a text", "a number under \"numbers\"");
    add(place, detail::describe_json(text), fmt::format("{}{}", expected, joined(known, ", ")),
        meant.empty() ? "" : "did you mean \"" + meant + "\"?");
  }

  // The reader finds these in other ways: rules, rope_scaling, functions, and kv_rank of latent attention.
  void said(const std::string& place, Value value) {
    static const std::set<Value> parts{Value::mixers, Value::mlps, Value::unequal_layers, Value::latent,
                                       Value::compressed};
    if ((value >= Value::rotary_scaling && value <= Value::whole_dimensions) || parts.contains(value))
      add(place + enum_name(value), "a value that no key says", "", "remove it");
  }

  void rule(const std::string& place, const LayerRule& r, const std::vector<std::string>& known) {
    for (const auto& [entry, text] : r.words)
      word(place + "/words/" + detail::escape_pointer(entry), text, known);
    if (!r.at_indices.empty()) word(place + "/at_indices", r.at_indices, known);
    if (!r.at_period.empty()) word(place + "/at_period", r.at_period, known);
    if (!r.others.empty()) word(place + "/others", r.others, known);
    if (place == "/experts") return;
    if (r.at_period.empty() && (r.period > 0 || !r.every.empty()))
      add(place, "a period without \"at_period\"", "the kind of its last layer");
    if (r.at_indices.empty() && !(r.indices.empty() && r.indices_from_one.empty()))
      add(place, "lists of layers without \"at_indices\"", "the kind of these layers");
  }

  void unused(const char* rule, const Json& json, const std::vector<std::string>& keys) {
    const Json::json_pointer place(rule);
    for (const std::string& key : keys)
      if (json.contains(place) && json[place].contains(key))
        add(std::string(rule) + "/" + key, "a key without effect there", "", "remove it");
  }

  const std::string at_;
  JsonProblems& problems_;
};

const FamilyTable& table() {
  static const FamilyTable read = read_families(std::string(family_files().front().second));
  return read;
}

}  // namespace

FamilyTable read_families(const std::string& text) {
  const Json file = parse_json(text, kTableFile);
  const auto own = from_json<std::map<std::string, Family>>(file, kTableFile);
  JsonProblems problems(kTableFile);
  FamilyTable table;
  for (const auto& [type, json] : file.items()) {
    const Family& family = own.at(type);
    EntryCheck(type, problems).check(family, json, table.types);
    const Family* const base = find_value(table.families, family.like);
    table.families[type] = base == nullptr ? family : inherited(family, *base, json);
    table.types.push_back(type);
  }
  problems.throw_if_any();
  return table;
}

const Family* find_family(const std::string& type) { return find_value(table().families, type); }

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
  if (value == Value::mlps) return {"dense", "experts", "none"};
  if (value == Value::mixers)
    return {"full",          "rotary", "window", "chunk",       "sparse",
            "sparse_shared", "linear", "both",   "convolution", "none"};
  if (value == Value::activation) return mapped<std::string>(activation_names(), &ActivationName::name);
  const ValueForm* const form = form_of(value);
  return form == nullptr ? std::vector<std::string>{} : form->known;
}

}  // namespace mpt::models
