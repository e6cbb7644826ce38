// SPDX-License-Identifier: Apache-2.0
#include "frameworks/framework.h"

#include <algorithm>
#include <string_view>

#include "base/json.h"

namespace mpt::frameworks {

const std::vector<std::pair<std::string_view, std::string_view>>& framework_files();  // generated

namespace {

std::vector<Framework> read_frameworks() {
  std::vector<Framework> frameworks;
  for (const auto& [file, text] : framework_files()) {
    const std::string where = "frameworks/*/" + std::string(file);
    frameworks.push_back(from_json<Framework>(parse_json(std::string(text), where), where));
  }
  std::sort(frameworks.begin(), frameworks.end(),
            [](const Framework& a, const Framework& b) { return a.name < b.name; });
  return frameworks;
}

}  // namespace

const std::vector<Framework>& known_frameworks() {
  static const std::vector<Framework> frameworks = read_frameworks();
  return frameworks;
}

const Framework& own_runtime() {
  static const Framework& own = *find_framework("mpt");
  return own;
}

const Framework* find_framework(const std::string& name) {
  const std::vector<Framework>& all = known_frameworks();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Framework& f) { return f.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace mpt::frameworks
