// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/toml_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>

#include "base/error.h"

namespace mpt::frameworks {
namespace {

constexpr size_t kDeepestToml = 32;

[[noreturn]] void refuse_toml(const WorkBudget& budget, int64_t line, std::string found) {
  throw UserError(Problem{fmt::format("{} at line {}", budget.file(), line), std::move(found),
                          "a configuration of a framework in TOML", ""});
}

// The library does not bound the parts of a key, each a table within the one before. For each dotted key and
// [[list]] it looks through all tables of others.
void check_keys(const std::string& text, WorkBudget& budget) {
  constexpr std::ptrdiff_t kMost = 4096;
  std::ptrdiff_t found = std::count(text.begin(), text.end(), '.');
  for (size_t at = text.find("[["); at != std::string::npos; at = text.find("[[", at + 2)) ++found;
  if (found > kMost)
    throw UserError(Problem{budget.file(), fmt::format("it has {} dots and [[", found),
                            fmt::format("at most {}", kMost), ""});
  budget.spend(text.size());
}

Json converted(const toml::node& node, WorkBudget& budget, size_t depth) {
  if (depth > kDeepestToml)
    refuse_toml(budget, node.source().begin.line, fmt::format("nesting deeper than {} levels", kDeepestToml));
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

Json toml_value(const std::string& text, WorkBudget& budget) {
  check_keys(text, budget);
  try {
    return converted(toml::parse(text), budget, 0);
  } catch (const toml::parse_error& error) {
    refuse_toml(budget, error.source().begin.line, std::string(error.description()));
  }
}

}  // namespace mpt::frameworks
