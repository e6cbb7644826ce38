// SPDX-License-Identifier: Apache-2.0
#pragma once

// What frameworks check of their own settings, as scripts/framework_rules.py reads it from their source.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/json.h"

namespace mpt::frameworks {

/// Values by name. Names without one are not known, and refuse nothing.
using SettingValues = std::map<std::string, Json>;

struct RuleFile {    // NOLINT(bugprone-exception-escape): moving Json does not throw
  std::string file;  // with the version of its package
  Json rules;        // lists: [line, "assert", condition], [line, "refuse"], [line, "set", name, value],
                     // [line, "if", condition, then, otherwise]

  static void describe(auto& v) {
    v.field("file", &RuleFile::file, "package, version and file");
    v.field("rules", &RuleFile::rules, "assertions, and the assignments that they depend on");
  }
};

/// As Python has it.
bool is_true(const Json& value);
/// "a sign b" of values, such as 2 // 3 or 2 in [1, 2]; nothing where Python has no such value.
std::optional<Json> computed(const Json& a, const std::string& sign, const Json& b);

struct BrokenRule {
  std::string place, condition;  // that must hold
};

/// The value of a condition, whose operators stand behind their operands: "hidden heads % 0 ==". Nothing
/// where it depends on what is not known.
std::optional<Json> condition_value(const std::string& text, const SettingValues& values);

/// The first rule that the settings break for certain. Sets values as the framework does on its way.
std::optional<BrokenRule> broken_rule(const std::vector<RuleFile>& files, SettingValues values);

}  // namespace mpt::frameworks
