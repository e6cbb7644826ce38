// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "base/values.h"

namespace mpt::frameworks {

/// A YAML file as JSON. Plain scalars are typed by YAML 1.2's core rules. Throws UserError for text that is
/// not YAML, is nested deeper than kDeepestYaml, or expands aliases beyond bounds.
Json read_yaml(const std::filesystem::path& file);
/// The same for text. If a key occurs twice, the last value counts, as in Python.
Json yaml_value(const std::string& text, WorkBudget& budget);
inline constexpr int kDeepestYaml = 32;

/// The value of a scalar without quotes by these rules.
Json plain_scalar(std::string text);

/// JSON values as block YAML.
std::string yaml_text(const Json& value);

}  // namespace mpt::frameworks
