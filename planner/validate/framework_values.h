// SPDX-License-Identifier: Apache-2.0
#pragma once

// Values of software that published runs alone need: reports/validation/frameworks/, built in.

#include <string>
#include <vector>

#include "core/execution.h"

namespace mpt::planner {

/// The values of that name for published runs, else those of a framework by its name or alias. Throws
/// UserError that names `where` for an unknown one.
Execution values_of_framework(const std::string& name, const std::string& where);

/// Those that published runs alone need.
std::vector<std::string> names_of_published_frameworks();

}  // namespace mpt::planner
