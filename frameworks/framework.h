// SPDX-License-Identifier: Apache-2.0
#pragma once

// The training frameworks whose abilities are known: frameworks/*/framework.json, built in.

#include <vector>

#include "frameworks/abilities.h"

namespace mpt::frameworks {

/// In the order of their names.
const std::vector<Framework>& known_frameworks();

/// mpt-run.
const Framework& own_runtime();

/// The framework of that name; null where its abilities are not known.
const Framework* find_framework(const std::string& name);

}  // namespace mpt::frameworks
