// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "base/values.h"

namespace mpt::frameworks {

/// A TOML 1.0 file as JSON. Throws UserError with file and line where it is no TOML, or is nested deeper than
/// kDeepestToml.
Json read_toml(const std::filesystem::path& file);
Json toml_value(const std::string& text, WorkBudget& budget);
inline constexpr size_t kDeepestToml = 32;

}  // namespace mpt::frameworks
