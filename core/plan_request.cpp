// SPDX-License-Identifier: Apache-2.0
#include "core/plan_request.h"

#include "base/json.h"

namespace mpt {
namespace {

// The request in a file without "format", or in a plan. A file with another "format" is refused.
Json request_in(const Json& json, const std::string& file, std::string& pointer) {
  const auto format = json.is_object() ? json.find("format") : json.end();
  if (!json.is_object() || format == json.end()) return json;
  const auto request = json.find("request");
  if (*format != "mpt-plan" || request == json.end())
    refuse_input(file, "no request", "a request, or a plan.json that holds one",
                 "mpt-plan ... --print-request prints one");
  pointer = "/request";
  return *request;
}

}  // namespace

PlanRequest load_request(const std::string& file) {
  const Json json = load_json(file);
  std::string pointer;
  return from_json<PlanRequest>(request_in(json, file, pointer), file, pointer);
}

std::string request_to_text(const PlanRequest& request) { return json_text(to_json(request), 1) + "\n"; }

}  // namespace mpt
