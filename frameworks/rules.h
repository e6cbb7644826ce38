// SPDX-License-Identifier: Apache-2.0
#pragma once

// Frameworks' checks of their own settings, as scripts/framework_rules.py reads them from their source.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/json.h"

namespace mpt::frameworks {

/// Values by name. Unknown names have no value, and refuse nothing.
using SettingValues = std::map<std::string, Json>;

struct RuleFile {  // NOLINT(bugprone-exception-escape): moving Json does not throw
#include "generated/RuleFile.inc"
};

/// By Python's rules.
bool is_true(const Json& value);
/// "a sign b" of values, such as 2 // 3 or 2 in [1, 2]; nothing if Python raises an error for it.
std::optional<Json> computed(const Json& a, const std::string& sign, const Json& b);

struct BrokenRule {
  std::string place, condition;  // the condition that must hold
};

/// The value of a condition in postfix form: "hidden heads % 0 ==". Nothing if it depends on unknown values.
std::optional<Json> condition_value(const std::string& text, const SettingValues& values);

/// The first rule that the settings certainly break. Sets values in the order in which the framework does.
std::optional<BrokenRule> broken_rule(const std::vector<RuleFile>& files, SettingValues values);

}  // namespace mpt::frameworks
