// SPDX-License-Identifier: Apache-2.0
#include "models/framework.h"

#include <fmt/ranges.h>

#include <string_view>

#include "core/json.h"

namespace mpt::models {

const std::vector<std::pair<std::string_view, std::string_view>>& framework_files();  // generated

std::vector<std::string> framework_names() {
  std::vector<std::string> names{Execution{}.framework};
  for (const auto& [file, text] : framework_files()) names.emplace_back(file.substr(0, file.rfind('.')));
  return names;
}

Execution load_framework(const std::string& name, const std::string& where) {
  if (name == Execution{}.framework) return {};
  for (const auto& [file, text] : framework_files()) {
    if (file.substr(0, file.rfind('.')) != name) continue;
    const std::string path = "frameworks/" + std::string(file);
    return from_json<Execution>(parse_json(std::string(text), path), path);
  }
  const std::vector<std::string> known = framework_names();
  throw UserError(
      Problem{where, fmt::format("unknown framework \"{}\"{}", name.substr(0, 80), did_you_mean(name, known)),
              fmt::format("one of {}", fmt::join(known, ", ")), ""});
}

}  // namespace mpt::models
