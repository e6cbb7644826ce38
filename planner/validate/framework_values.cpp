// SPDX-License-Identifier: Apache-2.0
#include "planner/validate/framework_values.h"

#include <map>
#include <string_view>

#include "base/json.h"
#include "frameworks/framework.h"

namespace mpt::planner {

const std::vector<std::pair<std::string_view, std::string_view>>& framework_value_files();  // generated

namespace {

const std::map<std::string, Execution>& published_values() {
  static const std::map<std::string, Execution> values = [] {
    std::map<std::string, Execution> all;
    for (const auto& [file, text] : framework_value_files()) {
      const std::string where = "reports/validation/frameworks/" + std::string(file);
      const auto values = from_json<Execution>(parse_json(std::string(text), where), where);
      all.emplace(values.framework, values);
    }
    return all;
  }();
  return values;
}

}  // namespace

Execution values_of_framework(const std::string& name, const std::string& where) {
  const auto found = published_values().find(name);
  return found != published_values().end() ? found->second : frameworks::load_framework(name, where);
}

std::vector<std::string> names_of_published_frameworks() {
  std::vector<std::string> names;
  for (const auto& [name, values] : published_values()) names.push_back(name);
  return names;
}

}  // namespace mpt::planner
