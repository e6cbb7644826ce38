// SPDX-License-Identifier: Apache-2.0
#include "frameworks/asked.h"

#include "base/embedded.h"
#include "frameworks/imported_file.h"
#include "frameworks/readers/python_file.h"
#include "models/family.h"
#include "models/value_map.h"

namespace mpt::frameworks {

const EmbeddedFiles& asked_files();  // generated

namespace {

// Types as pydantic reads them: floats with a whole value are integers, and 0 and 1 are false and true.
bool has_type(const Json& value, const std::string& kind) {
  if (value.is_null() || kind == "other" || kind == "section") return true;
  if (kind == "text" || value.is_structured()) return false;
  const double number = value.is_boolean() ? 0.0 : value.get<double>();
  return kind == "float" || (kind == "int" ? number == std::trunc(number) : number == 0.0 || number == 1.0);
}

}  // namespace

std::string AskedRegistry::place_of(const std::string& type) const {
  if (any) return place();
  const models::Family* const family = models::find_family(type);
  const std::string name = family != nullptr ? family->architecture : "";
  // A language model also trains in the class that adds an encoder to it.
  const std::string stem = name.substr(0, name.rfind("ForCausalLM"));
  for (const auto& [names, wanted] :
       {std::pair{&types, type}, {&classes, name}, {&classes, stem + "ForConditionalGeneration"}}) {
    const auto found = names->find(wanted);
    if (found == names->end()) continue;
    return place() + (found->second.find(':') == std::string::npos ? ":" : "/") + found->second;
  }
  return "";
}

std::string Asked::place_of(models::Value value, const Json& content) const {
  const auto part = parts.find(value);
  if (part == parts.end()) return "";
  std::string place;
  for (const Json& one : content.is_array() ? content : Json::array({content})) {
    auto found = part->second.find(models::text_of(one));
    if (found == part->second.end()) found = part->second.find("*");
    if (found == part->second.end()) return "";
    place = found->second;
  }
  return place;
}

std::string Asked::kind_of(const std::string& key) const {
  for (const auto& [kind, names] : keys)
    if (std::binary_search(names.begin(), names.end(), key)) return kind;
  return "";
}

std::optional<Json> Asked::value_of(const std::string& key, const std::vector<std::string>& words,
                                    const std::string& where) const {
  const std::string kind = kind_of(key);
  const std::string& package = settings_of.empty() ? registries.front().package : settings_of;
  if (kind.empty()) {
    std::vector<std::string> known;
    for (const auto& [of_kind, names] : keys) known.insert(known.end(), names.begin(), names.end());
    throw FrameworkRefusal(where, fmt::format("not known to {}{}", package, did_you_mean(key, known)), "");
  }
  if (kind == "flag" || kind == "off") return kind == "flag";
  if (words.empty() || kind == "section") return std::nullopt;
  const auto refuse = [&](const std::string& word, const std::string& expected) {
    throw FrameworkRefusal(where, fmt::format("\"{}\"", cut_text(word, 40)),
                           fmt::format("{}, as {} takes it", expected, package));
  };
  const bool several = kind.ends_with('s');
  const std::string one = kind.substr(0, kind.size() - size_t(several));
  const auto allowed = choices.find(key);
  Json values = Json::array();
  for (const std::string& word : words) {
    const auto number = number_of<double>(word);
    if (one == "other") return std::nullopt;
    if (one == "int" && !number_of<int64_t>(word)) refuse(word, "a whole number");
    if (one != "text" && !number) refuse(word, "a number");
    if (allowed != choices.end() && !contains(allowed->second, word)) refuse(word, one_of(allowed->second));
    values.push_back(one == "text" ? Json(word) : Json(*number));
    if (!several) return values.front();
  }
  return values;
}

void Asked::add_given(const Json& settings, const std::string& section, const std::string& file,
                      GivenSettings& given) const {
  const bool typed = contains(closed, section.substr(0, section.rfind('.')));
  for (const auto& [name, value] : settings.items()) {
    const std::string key = section + name, kind = kind_of(key), where = fmt::format("{} at {}", file, key);
    if (name.starts_with('_')) continue;  // a key for the reader of the file
    if (kind.empty() && !typed) {
      given.unknown.push_back(key);
      continue;
    }
    if (kind == "section" && value.is_object()) add_given(value, key + ".", file, given);
    const bool is_text = value.is_string() && kind != "other" && kind != "flag";
    std::optional<Json> known = value;
    if (value == "auto" || value.is_null()) known = std::nullopt;
    if ((known && is_text) || kind.empty())
      known = value_of(key, {is_text ? value.get<std::string>() : ""}, where);
    if (typed && !value.is_string() && !has_type(value, kind))
      throw FrameworkRefusal(where, std::string(cut_text(value.dump(), 40)),
                             fmt::format("{}, as {} takes it", kind, settings_of));
    given.values[copy_of(sets, key).value_or(key)] = std::move(known);
  }
}

std::optional<Problem> Asked::refusal(const std::map<std::string, std::optional<Json>>& given, bool whole,
                                      const std::string& file) const {
  SettingValues values;
  for (const auto& [name, value] : defaults.items())
    if (whole || !value.is_null()) values[name] = value;
  for (const auto& [name, value] : given) {
    values.erase(name);
    if (value) values[name] = *value;
  }
  const auto broken = broken_rule(rules, std::move(values));
  if (!broken) return std::nullopt;
  return Problem{file, fmt::format("{} refuses it", broken->place),
                 std::string(cut_text(broken->condition, 200)), ""};
}

std::map<std::string, std::optional<Json>> settings_by_path(const Json& settings,
                                                            const std::string& section) {
  std::map<std::string, std::optional<Json>> values;
  for (const auto& [name, value] : settings.items()) {
    const std::string path = section + (name == kCallKey ? "kind" : name);
    values[path] = value.is_object() ? std::nullopt : std::optional<Json>(value);
    if (value.is_object()) values.merge(settings_by_path(value, path + "."));
  }
  return values;
}

const Asked* asked_of(const Framework& framework) {
  static ReadOnce<Asked> all;
  return all.find(framework.name, [&](const std::string& name) -> std::optional<Asked> {
    for (const std::string& folder : {name, framework.dialect}) {
      const std::string file = folder + "/asked.json";
      if (const auto text = embedded_text(asked_files(), file))
        return from_json<Asked>(parse_json(*text, "frameworks/" + file), "frameworks/" + file);
    }
    return std::nullopt;
  });
}

}  // namespace mpt::frameworks
