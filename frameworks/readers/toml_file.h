// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/values.h"

namespace mpt::frameworks {

/// Text in TOML 1.0 as JSON. Throws UserError with file and line where it is no TOML, or is nested deeper
/// than 32 levels.
Json toml_value(const std::string& text, WorkBudget& budget);

}  // namespace mpt::frameworks
