// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/expressions.h"

#include "base/error.h"
#include "frameworks/readers/python_file.h"

namespace mpt::frameworks {
namespace {

constexpr int64_t kMostPatternBytes = 1 << 18;
constexpr size_t kMostLetters = 4096;

// Null if the text is not an expression of one line.
Json value_of_text(const std::string& text) {
  if (text.find('\n') != std::string::npos) return {};
  try {
    WorkBudget budget("", kMostPatternBytes);
    Json values = python_file("x = " + text, budget).values;
    return values.contains("x") ? std::move(values["x"]) : Json();
  } catch (const UserError&) {  // brackets or texts that do not end
    return {};
  }
}

// "Et*2|(tt|)*6L" as 'E'+'t'*2+'|'+('t'+'t'+'|')*6+'L'; empty if a letter is not known.
std::string python_of_layout(std::string_view text) {
  std::string python;
  for (const char c : text) {
    const bool letter = std::string_view("EtmL|").find(c) != std::string_view::npos;
    if (c == ' ' || c == ',') continue;
    if (!letter && std::string_view("()*0123456789").find(c) == std::string_view::npos) return "";
    if ((letter || c == '(') && !python.empty() && python.back() != '(') python += '+';
    python += letter ? std::string{'\'', c, '\''} : std::string(1, c);
  }
  return python;
}

}  // namespace

std::optional<int64_t> arithmetic_value(const std::string& text) {
  std::string python;
  for (const char c : text) python.append(c == '/' ? 2 : 1, c);
  const auto value = value_of_text(python);
  return value.is_number_integer() ? std::optional(value.get<int64_t>()) : std::nullopt;
}

std::optional<std::vector<int64_t>> layer_pattern(std::string text) {
  std::erase_if(text, [](char c) { return c == '\'' || c == '"'; });  // left over from a shell
  const auto list = value_of_text(text);
  const auto is_flag = [](const Json& layer) { return layer == 0 || layer == 1; };
  if (!list.is_array() || !all_of(list, is_flag)) return std::nullopt;
  return list.get<std::vector<int64_t>>();
}

std::optional<std::string> expanded_layout(std::string_view text) {
  const Json value = value_of_text(python_of_layout(text));
  std::string expanded = value.is_string() ? value.get<std::string>() : "";
  if (!expanded.starts_with('E') || !expanded.ends_with('L') || expanded.size() > kMostLetters)
    return std::nullopt;
  return expanded;
}

std::optional<std::vector<int64_t>> decoder_layers_of_stages(std::string_view text) {
  const auto expanded = expanded_layout(text);
  if (!expanded) return std::nullopt;
  std::vector<int64_t> stages{0};
  for (const char c : *expanded) {
    if (c == '|') stages.push_back(0);
    if (c == 't') ++stages.back();
  }
  return stages;
}

}  // namespace mpt::frameworks
