// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/yaml_file.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "frameworks/import.h"

namespace mpt::frameworks {
namespace {

Json scalar(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // quoted
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return nullptr;
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  int64_t whole = 0;
  const char* end = text.data() + text.size();
  if (const auto [stop, error] = std::from_chars(text.data(), end, whole);
      error == std::errc() && stop == end)
    return whole;
  double real = 0.0;
  if (const auto [stop, error] = std::from_chars(text.data(), end, real);
      error == std::errc() && stop == end && std::isfinite(real))
    return real;
  return text;
}

// `budget` counts values: aliases could make a small file a large one.
Json converted(const YAML::Node& node, const std::string& file, int depth, int64_t& budget) {
  if (depth > kDeepestYaml || --budget < 0)
    throw UserError(Problem{file, depth > kDeepestYaml ? "nested too deeply" : "too many values",
                            "a configuration of a framework in YAML", ""});
  if (node.IsScalar()) return scalar(node);
  if (node.IsSequence()) {
    Json list = Json::array();
    for (const YAML::Node& item : node) list.push_back(converted(item, file, depth + 1, budget));
    return list;
  }
  if (!node.IsMap()) return nullptr;
  Json map = Json::object();
  for (const auto& entry : node) {
    if (!entry.first.IsScalar())
      throw UserError(Problem{file, "a key that is no text", "a configuration of a framework in YAML", ""});
    map[entry.first.Scalar()] = converted(entry.second, file, depth + 1, budget);
  }
  return map;
}

// Python's YAML is of version 1.1, where these words are truth values.
bool is_truth_of_older_yaml(std::string text) {
  static constexpr std::array<std::string_view, 6> words{"y", "n", "yes", "no", "on", "off"};
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return char(std::tolower(c)); });
  return std::find(words.begin(), words.end(), text) != words.end();
}

// Words that YAML would not read as the text that they are.
bool needs_quotes(const std::string& text) {
  if (is_truth_of_older_yaml(text)) return true;
  YAML::Node node;
  try {
    node = YAML::Load(text);
  } catch (const YAML::Exception&) {
    return true;
  }
  return !node.IsScalar() || !scalar(node).is_string() || node.Scalar() != text ||
         text.find_first_of("#:\"'\n") != std::string::npos;
}

std::string inline_text(const Json& value) {
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    return needs_quotes(text) ? Json(text).dump() : text;
  }
  if (!value.is_array()) return value.is_object() && value.empty() ? "{}" : value.dump();
  std::string items;
  for (const Json& item : value) items += (items.empty() ? "" : ", ") + inline_text(item);
  return "[" + items + "]";
}

void append(const Json& map, int indent, std::string& text) {
  const std::string margin(size_t(indent), ' ');
  for (const auto& [key, value] : map.items()) {
    if (value.is_object() && !value.empty()) {
      text += fmt::format("{}{}:\n", margin, key);
      append(value, indent + 2, text);
    } else if (value.is_array() && !value.empty() && value.front().is_array()) {
      text += fmt::format("{}{}:\n", margin, key);
      for (const Json& item : value) text += fmt::format("{}- {}\n", margin, inline_text(item));
    } else {
      text += fmt::format("{}{}: {}\n", margin, key, inline_text(value));
    }
  }
}

}  // namespace

Json read_yaml(const std::filesystem::path& file) {
  const std::string text = read_file(file, kMostImportedBytes);
  try {
    int64_t budget = 1'000'000;
    return converted(YAML::Load(text), file.string(), 0, budget);
  } catch (const YAML::Exception& error) {
    throw UserError(Problem{fmt::format("{} at line {}", file.string(), error.mark.line + 1), error.msg,
                            "a configuration of a framework in YAML", ""});
  }
}

std::string yaml_text(const Json& value) {
  std::string text;
  append(value, 0, text);
  return text;
}

}  // namespace mpt::frameworks
