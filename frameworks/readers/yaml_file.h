// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "base/values.h"

namespace mpt::frameworks {

/// A YAML file as JSON, its plain scalars typed by YAML 1.2's core rules. Throws UserError where it is no
/// YAML, is nested deeper than kDeepestYaml, or names a thing twice over and over (aliases).
Json read_yaml(const std::filesystem::path& file);
/// The same for text. Of a key that stands twice the last value counts, as in Python.
Json yaml_value(const std::string& text, WorkBudget& budget);
inline constexpr int kDeepestYaml = 32;

/// What a scalar without quotes means by these rules.
Json plain_scalar(const std::string& text);

/// JSON values as block YAML.
std::string yaml_text(const Json& value);

}  // namespace mpt::frameworks
