// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is known of training frameworks, by name: models/frameworks/*.json, built in.

#include <string>
#include <vector>

#include "core/execution.h"

namespace mpt::models {

/// "mpt", this project's own runtime, or one of models/frameworks/. Throws UserError that names `where`
/// otherwise.
Execution load_framework(const std::string& name, const std::string& where);
std::vector<std::string> framework_names();

}  // namespace mpt::models
