// SPDX-License-Identifier: Apache-2.0

// The part without a library: plain scalars, and writing.

#include <array>
#include <string_view>

#include "base/files.h"
#include "base/text.h"
#include "frameworks/imported_file.h"
#include "frameworks/readers/yaml_file.h"

namespace mpt::frameworks {
namespace {

// Python's YAML has version 1.1: there these words are truth values.
bool is_truth_of_older_yaml(const std::string& text) {
  static constexpr std::array<std::string_view, 6> words{"y", "n", "yes", "no", "on", "off"};
  return contains(words, lower_case(text));
}

// Texts that YAML would read as another value without quotes, in a list or outside.
bool needs_quotes(const std::string& text) {
  constexpr std::string_view kInside = "#:\"'\n,[]{}", kFirst = "&*!|>%@`?-";
  if (is_truth_of_older_yaml(text) || !plain_scalar(text).is_string()) return true;
  if (text.find_first_of(kInside) != std::string::npos || !is_printable(text)) return true;
  if (text.starts_with(' ') || text.ends_with(' ') || text.starts_with("---")) return true;
  const bool dashed = text.size() > 1 && text.front() == '-' && text[1] != ' ';  // such as a switch
  return !dashed && kFirst.find(text.front()) != std::string_view::npos;
}

std::string inline_text(const Json& value) {
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    return needs_quotes(text) ? Json(text).dump() : text;
  }
  if (!value.is_array()) return value.is_object() && value.empty() ? "{}" : value.dump();
  return "[" + joined(mapped<std::string>(value, inline_text), ", ") + "]";
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

Json plain_scalar(std::string text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return nullptr;
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  // YAML 1.1 and Python take 500_000.
  if (text.find_first_not_of("0123456789_") > text.size() && text.front() != '_') std::erase(text, '_');
  if (const auto whole = number_of<int64_t>(text)) return *whole;
  if (const auto real = number_of<double>(text)) return *real;
  return text;
}

Json read_yaml(const std::filesystem::path& file) {
  WorkBudget budget(file.string(), kMostImportedBytes);
  return yaml_value(read_file(file, kMostImportedBytes), budget);
}

std::string yaml_text(const Json& value) {
  std::string text;
  append(value, 0, text);
  return text;
}

}  // namespace mpt::frameworks
