// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/toml_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>

#include "base/error.h"
#include "frameworks/import.h"

namespace mpt::frameworks {
namespace {

[[noreturn]] void refuse_toml(const WorkBudget& budget, int64_t line, std::string found) {
  throw UserError(Problem{fmt::format("{} at line {}", budget.file(), line), std::move(found),
                          "a configuration of a framework in TOML", ""});
}

std::string too_deep() { return fmt::format("nesting deeper than {} levels", kDeepestToml); }

// Behind the text in quotes that begins at `at`.
size_t end_of_quotes(const std::string& text, size_t at) {
  const char quote = text[at];
  const bool is_long = text.compare(at, 3, std::string(3, quote)) == 0;
  const std::string end(is_long ? 3 : 1, quote);
  for (at += end.size(); at < text.size(); ++at) {
    if (text[at] == '\\' && quote == '"') {
      ++at;
    } else if (!is_long && text[at] == '\n') {
      return at;
    } else if (text.compare(at, end.size(), end) == 0) {
      at += end.size();
      for (int more = 0; is_long && more < 2 && at < text.size() && text[at] == quote; ++more) ++at;
      return at;
    }
  }
  return text.size();
}

// What the library does not bound: the parts of a key, and how often it looks through the tables of all
// dotted keys and the lists of all [[tables]] before.
void check_keys(const std::string& text, WorkBudget& budget) {
  size_t dots = 0, looks = 0;
  int64_t line = 1;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      const size_t end = end_of_quotes(text, at);
      line += std::count(text.begin() + std::ptrdiff_t(at), text.begin() + std::ptrdiff_t(end), '\n');
      at = end;
      continue;
    }
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (c == '.' && ++dots >= kDeepestToml) refuse_toml(budget, line, too_deep());
    if (c == '=' || c == ']') looks += dots;
    if (c == '[' && text.compare(at, 2, "[[") == 0) ++looks;
    if (std::string_view("[]{}=,\n").find(c) != std::string_view::npos) dots = 0;
    if (c == '\n') ++line;
    ++at;
  }
  budget.spend(text.size() + looks * looks);
}

Json converted(const toml::node& node, WorkBudget& budget, size_t depth) {
  if (depth > kDeepestToml) refuse_toml(budget, node.source().begin.line, too_deep());
  if (const toml::table* table = node.as_table()) {
    ObjectBuilder object;
    for (const auto& [key, value] : *table)
      object.set(std::string(key.str()), converted(value, budget, depth + 1), budget);
    return object.take();
  }
  budget.spend(WorkBudget::kValueSteps);
  if (const toml::array* array = node.as_array()) {
    Json list = Json::array();
    for (const toml::node& item : *array) list.push_back(converted(item, budget, depth + 1));
    return list;
  }
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return number->get();
  if (const auto* number = node.as_floating_point()) return number->get();
  if (const auto* flag = node.as_boolean()) return flag->get();
  return "a date";  // no setting is one
}

}  // namespace

Json read_toml(const std::filesystem::path& file) {
  WorkBudget budget(file.string(), kMostImportedBytes);
  return toml_value(read_file(file, kMostImportedBytes), budget);
}

Json toml_value(const std::string& text, WorkBudget& budget) {
  check_keys(text, budget);
  try {
    return converted(toml::parse(text), budget, 0);
  } catch (const toml::parse_error& error) {
    refuse_toml(budget, error.source().begin.line, std::string(error.description()));
  }
}

}  // namespace mpt::frameworks
