// SPDX-License-Identifier: Apache-2.0
#include "frameworks/framework.h"

#include <array>

#include "base/embedded.h"

namespace mpt::frameworks {

const EmbeddedFiles& framework_files();  // generated

namespace {

// A framework's folder has its name.
const Framework* framework_of_name(const std::string& name) {
  static ReadOnce<Framework> frameworks;
  return frameworks.find(name, [](const std::string& folder) -> std::optional<Framework> {
    const std::string file = folder + "/framework.json";
    const auto text = embedded_text(framework_files(), file);
    if (!text) return std::nullopt;
    auto framework = from_json<Framework>(parse_json(*text, "frameworks/" + file), "frameworks/" + file);
    MPT_CHECK(framework.name == folder, "frameworks/{} names {}", file, framework.name);
    framework.execution.framework = folder;
    index(framework.abilities.combinations, framework.abilities.judged);
    return framework;
  });
}

std::vector<Framework> read_frameworks() {
  std::vector<Framework> frameworks;
  for (const auto& [file, text] : framework_files())
    frameworks.push_back(*framework_of_name(std::string(file.substr(0, file.find('/')))));
  sort_by(frameworks, [](const Framework& f) { return f.name; });
  return frameworks;
}

// A program that MPT does not plan for, in lower case, what is near it, and the framework to plan for.
constexpr std::array<const char*, 3> kOtherPrograms[] = {
#include "generated/UnplannedPrograms.inc"
};

// "0.19.2" of "core_v0.19.2".
std::string version_number(const Framework& framework) {
  const size_t begin = framework.version.find_first_of("0123456789");
  return begin == std::string::npos ? "" : framework.version.substr(begin);
}

// Numbers and truth values of JSON; any other text is a name.
Json value_of(const std::string& text) {
  const auto parsed = json_of(text);
  return parsed && (parsed->is_number() || parsed->is_boolean()) ? *parsed : Json(text);
}

// All fields, also those that files leave out where they have their defaults.
struct ExecutionNames {
  std::vector<std::string> names;
  template <class Member>
  void field(const char* name, Member, const char*, FieldRule = {}) {
    names.emplace_back(name);
  }
};

}  // namespace

const std::vector<Framework>& known_frameworks() {
  static const std::vector<Framework> frameworks = read_frameworks();
  return frameworks;
}

std::vector<std::string> framework_names(const std::function<bool(const Framework&)>& wanted) {
  return mapped_if<std::string>(known_frameworks(), wanted, &Framework::name);
}

const Framework& own_runtime() {
  static const Framework& own = *find_framework(Execution{}.framework);
  return own;
}

const Framework& usual_framework() {
  static const Framework& usual = *find_framework("megatron-core");
  return usual;
}

const Framework* find_framework(const std::string& name) {
  if (const size_t equals = name.find("=="); equals != std::string::npos) {
    const Framework* const known = find_framework(name.substr(0, equals));
    return known != nullptr && version_number(*known) == name.substr(equals + 2) ? known : nullptr;
  }
  if (const Framework* const named = framework_of_name(name)) return named;
  const std::vector<Framework>& all = known_frameworks();
  const auto found =
      find_if(all, [&](const Framework& f) { return f.name == name || contains(f.other_names(), name); });
  return found == all.end() ? nullptr : framework_of_name(found->name);
}

const Framework& framework_named(const std::string& name, const std::string& where) {
  if (const Framework* known = find_framework(name)) return *known;
  const Framework* const other_version = find_framework(name.substr(0, name.find("==")));
  if (other_version != nullptr)
    refuse_input(where, name.substr(0, 80),
                 fmt::format("{}=={}, whose settings and rules are known", other_version->name,
                             version_number(*other_version)),
                 "leave the version out, or take that one");
  const std::string typed = lower_case(name);
  for (const auto& [program, near, framework] : kOtherPrograms)
    if (typed.starts_with(program))
      refuse_input(where, name.substr(0, 80), fmt::format("a program that MPT plans for: {}", near),
                   fmt::format("--framework {}", framework));
  std::vector<std::string> names = framework_names();
  for (const Framework& other : known_frameworks())
    for (const std::string& alias : other.other_names()) names.push_back(alias);
  refuse_input(where,
               fmt::format("unknown framework \"{}\"{}", name.substr(0, 80), did_you_mean(name, names)),
               one_of(names));
}

Execution load_framework(const std::string& name, const std::string& where) {
  const Framework& named = framework_named(name, where);
  const auto* const own = find_value(named.alias_execution, name);
  return own == nullptr ? named.execution : with_changes(named.execution, *own, where);
}

Execution with_fields(const Execution& execution, const Json& fields, const std::string& where) {
  if (!fields.is_object()) refuse_input(where, detail::describe_json(fields), "an object");
  Json all = to_json(execution);
  Json changed = fields;
  if (const auto name = fields.find("framework"); name != fields.end()) {
    const std::string at = where + "/framework";
    if (!name->is_string()) refuse_input(at, detail::describe_json(*name), "a name");
    all = to_json(load_framework(name->get<std::string>(), at));
    changed.erase("framework");
  }
  return from_json<Execution>(with_members(all, changed, where), where);
}

Execution with_changes(const Execution& execution, const std::vector<std::string>& changes,
                       const std::string& where) {
  Json fields = Json::object();
  ExecutionNames known;
  Execution::describe(known);
  const std::vector<std::string>& names = known.names;
  for (const std::string& change : changes) {
    const size_t equals = change.find('=');
    const std::string name = change.substr(0, equals);
    if (equals == std::string::npos || !contains(names, name))
      refuse_input(
          where, change.substr(0, 80) + did_you_mean(name, names),
          fmt::format("name=value, such as fp8_attention=true, with a name of {}", joined(names, ", ")));
    if (name == "framework")
      refuse_input(where, change.substr(0, 80), "a field other than the framework's name",
                   "name the framework with --framework");
    fields[name] = value_of(change.substr(equals + 1));
  }
  return with_fields(execution, fields, where);
}

}  // namespace mpt::frameworks
