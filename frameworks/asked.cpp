// SPDX-License-Identifier: Apache-2.0
#include "frameworks/asked.h"

#include "base/embedded.h"
#include "models/family.h"
#include "models/value_map.h"

namespace mpt::frameworks {

const EmbeddedFiles& asked_files();  // generated

std::string AskedRegistry::place_of(const std::string& type) const {
  if (any) return place();
  const models::Family* const family = models::find_family(type);
  const std::string name = family != nullptr ? family->architecture : "";
  // A language model also trains in the class that has an encoder beside it.
  const std::string stem = name.substr(0, name.rfind("ForCausalLM"));
  for (const auto& [names, wanted] :
       {std::pair{&types, type}, {&classes, name}, {&classes, stem + "ForConditionalGeneration"}}) {
    const auto found = names->find(wanted);
    if (found == names->end()) continue;
    return place() + (found->second.find(':') == std::string::npos ? ":" : "/") + found->second;
  }
  return "";
}

std::string Asked::place_of(models::Value value, const Json& content) const {
  const auto part = parts.find(value);
  if (part == parts.end()) return "";
  std::string place;
  for (const Json& one : content.is_array() ? content : Json::array({content})) {
    auto found = part->second.find(models::text_of(one));
    if (found == part->second.end()) found = part->second.find("*");
    if (found == part->second.end()) return "";
    place = found->second;
  }
  return place;
}

const Asked* asked_of(const Framework& framework) {
  static ReadOnce<Asked> all;
  return all.find(framework.name, [&](const std::string& name) -> std::optional<Asked> {
    for (const std::string& folder : {name, framework.dialect}) {
      const std::string file = folder + "/asked.json";
      if (const auto text = embedded_text(asked_files(), file))
        return from_json<Asked>(parse_json(*text, "frameworks/" + file), "frameworks/" + file);
    }
    return std::nullopt;
  });
}

}  // namespace mpt::frameworks
