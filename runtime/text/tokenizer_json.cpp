// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer_json.h"

namespace mpt::runtime {

void refuse_part(const std::string& where, const std::string& found) {
  refuse_input(where, found, "what MPT reads of a tokenizer.json (docs/training.md, \"Tokens\")",
               "tokenise with the package tokenizers, write the ids as uint32 to a file, and "
               "train with --data-format uint32");
}

JsonPart::JsonPart(const Json& json, std::string where)
    : json_(json), where_(std::move(where)), known_{"type"} {
  if (!json.is_object()) refuse_part(where_, detail::describe_json(json));
}

const Json& JsonPart::value(const std::string& key) {
  static const Json nothing;
  known_.insert(key);
  const auto found = json_.find(key);
  return found == json_.end() ? nothing : *found;
}

void JsonPart::expect(const std::string& key, const Json& usual) {
  if (const Json& found = value(key); !found.is_null() && found != usual && found != "") refuse(key);
}

void JsonPart::refuse(const std::string& key) { refuse_part(where(key), detail::describe_json(value(key))); }

void JsonPart::finish() {
  for (const auto& [key, value] : json_.items())
    if (!known_.contains(key)) refuse(key);
}

}  // namespace mpt::runtime
