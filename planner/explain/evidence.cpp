// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/evidence.h"

#include <string_view>
#include <utility>

#include "base/json.h"

namespace mpt::planner {

const std::vector<std::pair<std::string_view, std::string_view>>& evidence_files();  // generated

std::vector<Evidence> published_evidence() {
  const auto& [file, text] = evidence_files().front();
  const std::string name(file);
  return from_json<std::vector<Evidence>>(parse_json(std::string(text), name), name);
}

}  // namespace mpt::planner
