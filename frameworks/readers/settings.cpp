// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/settings.h"

#include <sstream>

namespace mpt::frameworks {

const Json* Settings::find(const std::string& key) const {
  const Json* at = &json_;
  for (size_t begin = 0; begin <= key.size();) {
    const size_t end = std::min(key.find('.', begin), key.size());
    if (!at->is_object()) return nullptr;
    const auto found = at->find(key.substr(begin, end - begin));
    if (found == at->end()) return nullptr;
    at = &*found;
    begin = end + 1;
  }
  return at->is_null() ? nullptr : at;
}

std::string Settings::at(const std::string& key) const { return fmt::format("{} at {}", file_, key); }

int64_t Settings::number(const std::string& key, const FieldRule& rule, int64_t otherwise) const {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_number_integer()) refuse_input(at(key), detail::describe_json(*value), "a whole number");
  const double number = value->get<double>();
  if (number >= rule.minimum && number <= rule.maximum) return value->get<int64_t>();
  refuse_input(at(key), value->dump(), fmt::format("a number from {} to {}", rule.minimum, rule.maximum));
}

bool Settings::flag(const std::string& key, bool otherwise) const {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  refuse_input(at(key), detail::describe_json(*value), "true or false");
}

std::string Settings::text(const std::string& key, const std::string& otherwise) const {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->is_string()) return value->get<std::string>();
  refuse_input(at(key), detail::describe_json(*value), "a text");
}

std::vector<std::string> Settings::texts(const std::string& key) const {
  const Json* const value = find(key);
  std::vector<std::string> texts;
  if (value == nullptr) return texts;
  for (const Json& item : value->is_array() ? *value : Json::array({*value})) {
    std::istringstream text(item.is_string() ? item.get<std::string>() : "");
    for (std::string part; std::getline(text, part, ',');) texts.push_back(part);
  }
  return texts;
}

std::vector<int64_t> layers_of_modules(const Settings& settings, const std::string& key) {
  std::vector<int64_t> layers;
  const Json* stages = settings.find(key);
  if (stages == nullptr) return layers;
  if (!stages->is_array())
    refuse_input(settings.at(key), detail::describe_json(*stages), "a list of lists of names");
  for (const Json& stage : *stages) {
    int64_t count = 0;
    if (!stage.is_array()) refuse_input(settings.at(key), detail::describe_json(stage), "a list of names");
    for (const Json& module : stage)
      if (module.is_string() && module.get<std::string>().find("layers.") != std::string::npos) ++count;
    layers.push_back(count);
  }
  return layers;
}

}  // namespace mpt::frameworks
