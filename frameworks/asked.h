// SPDX-License-Identifier: Apache-2.0
#pragma once

// What was asked of the released package of a framework: frameworks/*/asked.json, built in.
// scripts/ask-frameworks writes them.

#include <map>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/json.h"
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

  template <class V>
  static void describe(V& v) {
    using T = AskedRegistry;
    v.field("package", &T::package, "name and version");
    v.field("file", &T::file, "where the package lists its models");
    v.field("any", &T::any, "it takes any model", rare_field());
    v.field("classes", &T::classes, "classes of models, as config.json names them", rare_field());
    v.field("types", &T::types, "model_type of config.json", rare_field());
  }
};

struct Asked {
  std::vector<AskedRegistry> registries;  // its own before those of packages below
  std::map<models::Value, std::map<std::string, std::string>> parts;

  /// Where it has a value of that content; empty: nowhere.
  std::string place_of(models::Value value, const Json& content) const;

  template <class V>
  static void describe(V& v) {
    v.field("registries", &Asked::registries, "its models; its own before those of a package below");
    v.field("parts", &Asked::parts, "values of models beyond its dialect's, by what they are; *: anything",
            rare_field());
  }
};

/// Null: nothing was asked.
const Asked* asked_of(const Framework& framework);

}  // namespace mpt::frameworks
