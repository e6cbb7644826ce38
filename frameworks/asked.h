// SPDX-License-Identifier: Apache-2.0
#pragma once

// Facts about the released package of a framework: frameworks/*/asked.json, built in. scripts/ask-frameworks
// reads them from the package.

#include <map>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/json.h"
#include "frameworks/rules.h"
#include "frameworks/supports/abilities.h"
#include "models/values.h"

namespace mpt::frameworks {

/// The models of one package: names with their line in the file, or with their file and line in the folder.
struct AskedRegistry {
#include "generated/AskedRegistry.inc"

  std::string place() const { return package + ", " + file; }
  /// The place of the type of config.json, or of the language model of its class; empty: the package has
  /// none.
  std::string place_of(const std::string& type) const;
};

/// Settings of a file.
struct GivenSettings {
  std::map<std::string, std::optional<Json>> values;  // by the names of the rules; nothing: not known
  std::vector<std::string> unknown;                   // keys that the framework does not read
};

struct Asked {
#include "generated/Asked.inc"

  /// The kind of a setting's value; empty for a setting that the framework does not have.
  std::string kind_of(const std::string& key) const;
  /// The value that words give to a setting; nothing if they are no literal. Throws FrameworkRefusal at
  /// `where` for an unknown key, and for a value outside the setting's kind.
  std::optional<Json> value_of(const std::string& key, const std::vector<std::string>& words,
                               const std::string& where) const;
  /// Adds the keys of a section, "distributed.", and those of the sections in it. Throws FrameworkRefusal.
  void add_given(const Json& settings, const std::string& section, const std::string& file,
                 GivenSettings& given) const;
  /// The framework's own reason to refuse settings. `given`: by the names of the rules, without a value if it
  /// is not known. `whole`: `given` is complete, so other settings have their defaults.
  std::optional<Problem> refusal(const std::map<std::string, std::optional<Json>>& given, bool whole,
                                 const std::string& file) const;

  /// The place of a value with that content; empty: the package has none.
  std::string place_of(models::Value value, const Json& content) const;
};

/// Settings by their paths. Sections have no value; a call that makes one gives it a "kind".
std::map<std::string, std::optional<Json>> settings_by_path(const Json& settings,
                                                            const std::string& section = "");

/// Null: the framework has no asked.json.
const Asked* asked_of(const Framework& framework);

}  // namespace mpt::frameworks
