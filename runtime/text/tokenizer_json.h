// SPDX-License-Identifier: Apache-2.0
#pragma once

// Objects of a tokenizer.json. Whatever nobody reads of one is refused by its name: tokens that are nearly
// right would train a model nobody can use. Include this only from .cpp files, as base/json.h.

#include <set>
#include <string>

#include "base/json.h"

namespace mpt::runtime {

/// Throws UserError: `where` is file and JSON pointer, `found` what MPT does not read.
[[noreturn]] void refuse_part(const std::string& where, const std::string& found);

class JsonPart {
 public:
  /// Throws UserError if `json` is no object. It must outlive the part.
  JsonPart(const Json& json, std::string where);

  const std::string& where() const { return where_; }
  std::string where(const std::string& key) const { return where_ + "/" + key; }
  /// The value of a key; null if it is absent.
  const Json& value(const std::string& key);
  /// The value of a key as T: bool, a text, Json::array_t or Json::object_t. Absent or null: `usual`. Throws
  /// UserError if it has another type.
  template <class T>
  T get(const std::string& key, const Json& usual = nullptr) {
    const Json& found = value(key).is_null() ? usual : value(key);
    if (found.type() != Json(T()).type()) refuse(key);
    return found.get_ref<const T&>();
  }
  /// Throws UserError unless the key is absent, null, `usual`, or "".
  void expect(const std::string& key, const Json& usual);
  /// Throws UserError for the value of a key.
  [[noreturn]] void refuse(const std::string& key);
  /// Throws UserError at a key that was not read.
  void finish();

 private:
  const Json& json_;
  std::string where_;
  std::set<std::string> known_;
};

/// Calls add(part) for each object that the value holds: none, one, or a sequence under `list`.
template <class F>
void for_each_step(const Json& json, const std::string& where, const std::string& list, F&& add) {
  if (json.is_null()) return;
  JsonPart part(json, where);
  if (part.get<std::string>("type") == "Sequence") {
    const auto steps = part.get<Json::array_t>(list);
    for (size_t i = 0; i < steps.size(); ++i)
      for_each_step(steps[i], fmt::format("{}/{}", part.where(list), i), list, add);
  } else {
    add(part);
  }
  part.finish();
}

}  // namespace mpt::runtime
