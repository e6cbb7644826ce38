// SPDX-License-Identifier: Apache-2.0
#pragma once

// What was asked of the released package of a framework: frameworks/*/asked.json, built in.
// scripts/ask-frameworks writes them.

#include <map>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/json.h"
#include "frameworks/rules.h"
#include "frameworks/supports/abilities.h"
#include "models/values.h"

namespace mpt::frameworks {

/// The models that one package has: names with their line in the file, or their file and line in the folder.
struct AskedRegistry {
  std::string package, file;
  bool any = false;
  std::map<std::string, std::string> classes, types;

  std::string place() const { return package + ", " + file; }
  /// Where it has the type of config.json, or the language model of its class; empty: nowhere.
  std::string place_of(const std::string& type) const;

  static void describe(auto& v) {
    using T = AskedRegistry;
    v.field("package", &T::package, "name and version");
    v.field("file", &T::file, "where the package lists its models");
    v.field("any", &T::any, "it takes any model", rare_field());
    v.field("classes", &T::classes, "classes of models, as config.json names them", rare_field());
    v.field("types", &T::types, "model_type of config.json", rare_field());
  }
};

/// Settings of a file.
struct GivenSettings {
  std::map<std::string, std::optional<Json>> values;  // by the names of the rules; nothing: not known
  std::vector<std::string> unknown;                   // keys that the framework does not look at
};

struct Asked {
  std::vector<AskedRegistry> registries;  // its own before those of packages below
  std::string settings_of;                // name and version of the package; empty: the first registry's
  std::map<models::Value, std::map<std::string, std::string>> parts;

  // Settings by how they are written: flag, off, int, float, text, other, their plurals, and section.
  std::map<std::string, std::vector<std::string>> keys;
  std::vector<std::string> closed;  // sections that take no other keys, and values of their types alone
  std::map<std::string, std::string> sets;  // names that the rules have for keys
  std::map<std::string, std::vector<std::string>> choices;
  Json defaults;  // of names that the rules need
  Json presets;   // fields that a named recipe sets, by its name
  std::vector<RuleFile> rules;

  /// How a setting is written; empty for one that the framework does not have.
  std::string kind_of(const std::string& key) const;
  /// The value that words give to a setting; nothing where they are no literal. Throws FrameworkRefusal at
  /// `where` for an unknown key, and for a value that it cannot have.
  std::optional<Json> value_of(const std::string& key, const std::vector<std::string>& words,
                               const std::string& where) const;
  /// Adds the keys of a section, "distributed.", and those of the sections in it. Throws FrameworkRefusal.
  void add_given(const Json& settings, const std::string& section, const std::string& file,
                 GivenSettings& given) const;
  /// Why the framework's own rules refuse settings. `given`: by the names of the rules, without a value where
  /// it is not known. `whole`: what is not given is not given elsewhere.
  std::optional<Problem> refusal(const std::map<std::string, std::optional<Json>>& given, bool whole,
                                 const std::string& file) const;

  /// Where it has a value of that content; empty: nowhere.
  std::string place_of(models::Value value, const Json& content) const;

  static void describe(auto& v) {
    v.field("registries", &Asked::registries, "its models; its own before those of a package below");
    v.field("settings_of", &Asked::settings_of, "package that has the settings", rare_field());
    v.field("parts", &Asked::parts, "values of models beyond its dialect's, by what they are; *: anything",
            rare_field());
    v.field("keys", &Asked::keys, "its settings, by how they are written", rare_field());
    v.field("closed", &Asked::closed, "sections that take no other keys", rare_field());
    v.field("sets", &Asked::sets, "names that the rules have for keys", rare_field());
    v.field("choices", &Asked::choices, "texts that a setting may be", rare_field());
    v.field("defaults", &Asked::defaults, "of names that the rules need", rare_field());
    v.field("presets", &Asked::presets, "fields that a named recipe sets, by its name", rare_field());
    v.field("rules", &Asked::rules, "what it checks, in its order", rare_field());
  }
};

/// Settings by their paths. Sections have no value; a call that makes one gives it a "kind".
std::map<std::string, std::optional<Json>> settings_by_path(const Json& settings,
                                                            const std::string& section = "");

/// Null: nothing was asked.
const Asked* asked_of(const Framework& framework);

}  // namespace mpt::frameworks
