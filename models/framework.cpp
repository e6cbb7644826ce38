// SPDX-License-Identifier: Apache-2.0
#include "models/framework.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "base/json.h"

namespace mpt::models {

const std::vector<std::pair<std::string_view, std::string_view>>& framework_files();        // generated
const std::vector<std::pair<std::string_view, std::string_view>>& framework_names_files();  // generated

const std::vector<FrameworkName>& framework_vocabulary() {
  static const std::vector<FrameworkName> names = [] {
    const auto& [file, text] = framework_names_files().front();
    const std::string where(file);
    return from_json<std::vector<FrameworkName>>(parse_json(std::string(text), where), where);
  }();
  return names;
}

const FrameworkName* find_framework_name(const std::string& name) {
  const auto& all = framework_vocabulary();
  const auto found = std::find_if(all.begin(), all.end(), [&](const FrameworkName& row) {
    return row.framework == name ||
           std::find(row.aliases.begin(), row.aliases.end(), name) != row.aliases.end();
  });
  return found == all.end() ? nullptr : &*found;
}

std::vector<std::string> framework_names() {
  std::vector<std::string> names{Execution{}.framework};
  for (const auto& [file, text] : framework_files()) names.emplace_back(file.substr(0, file.rfind('.')));
  return names;
}

Execution load_framework(const std::string& name, const std::string& where) {
  if (name == Execution{}.framework) return {};
  const FrameworkName* row = find_framework_name(name);
  const std::string& own_name = row != nullptr ? row->framework : name;
  for (const auto& [file, text] : framework_files()) {
    if (file.substr(0, file.rfind('.')) != own_name) continue;
    const std::string path = "frameworks/" + std::string(file);
    return from_json<Execution>(parse_json(std::string(text), path), path);
  }
  std::vector<std::string> known = framework_names();
  const std::string expected = fmt::format("one of {}", fmt::join(known, ", "));
  for (const FrameworkName& other : framework_vocabulary())
    known.insert(known.end(), other.aliases.begin(), other.aliases.end());
  throw UserError(
      Problem{where, fmt::format("unknown framework \"{}\"{}", name.substr(0, 80), did_you_mean(name, known)),
              expected, ""});
}

namespace {

// Numbers and truth values as JSON has them; all else is a name.
Json value_of(const std::string& text) {
  if (!text.empty() && (text.front() == '[' || text.front() == '{')) return Json(text);  // of any depth
  const Json parsed = Json::parse(text, nullptr, false);
  return parsed.is_number() || parsed.is_boolean() ? parsed : Json(text);
}

}  // namespace

Execution with_fields(const Execution& execution, const Json& fields, const std::string& where) {
  if (!fields.is_object()) throw UserError(Problem{where, detail::describe_json(fields), "an object", ""});
  Json all = to_json(execution);
  if (const auto name = fields.find("framework"); name != fields.end()) {
    const std::string at = where + "/framework";
    if (!name->is_string()) throw UserError(Problem{at, detail::describe_json(*name), "a name", ""});
    all = to_json(load_framework(name->get<std::string>(), at));
  }
  for (const auto& [field, value] : fields.items()) all[field] = value;
  return from_json<Execution>(all, where);
}

Execution with_changes(const Execution& execution, const std::vector<std::string>& changes,
                       const std::string& where) {
  Json fields = Json::object();
  for (const std::string& change : changes) {
    const size_t equals = change.find('=');
    if (equals == std::string::npos || equals == 0)
      throw UserError(Problem{where, change.substr(0, 80), "name=value, such as fp8_attention=true", ""});
    const std::string name = change.substr(0, equals);
    if (name == "framework")
      throw UserError(Problem{where, change.substr(0, 80), "a field other than the framework's name",
                              "name the framework with --framework"});
    fields[name] = value_of(change.substr(equals + 1));
  }
  return with_fields(execution, fields, where);
}

}  // namespace mpt::models
