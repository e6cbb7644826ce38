// SPDX-License-Identifier: Apache-2.0
#pragma once

// Settings of a framework's configuration, read and checked one by one: "fsdp_config.fsdp_version" is a key
// within an object. Errors name file and key.

#include <string>
#include <vector>

#include "base/fields.h"
#include "base/json.h"

namespace mpt::frameworks {

class Settings {
 public:
  Settings(Json json, std::string file) : json_(std::move(json)), file_(std::move(file)) {}

  /// The value of the key, or null. An explicit null counts as absent.
  const Json* find(const std::string& key) const;
  const Json& all() const { return json_; }
  const std::string& file() const { return file_; }
  bool has(const std::string& key) const { return find(key) != nullptr; }
  std::string at(const std::string& key) const;

  /// Throw UserError for another type, or a number out of the range of the plan's field.
  int64_t number(const std::string& key, const FieldRule& rule, int64_t otherwise) const;
  bool flag(const std::string& key, bool otherwise) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  /// A list of texts, or one text with commas. Other values are skipped.
  std::vector<std::string> texts(const std::string& key) const;

 private:
  Json json_;
  std::string file_;
};

/// Numbers of decoder layers in lists of module names such as [["tok_embeddings", "layers.0"], ["layers.1"]].
std::vector<int64_t> layers_of_modules(const Settings& settings, const std::string& key);

}  // namespace mpt::frameworks
