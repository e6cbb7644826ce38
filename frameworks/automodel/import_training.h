// SPDX-License-Identifier: Apache-2.0
#pragma once

// How a recipe of NeMo AutoModel trains: its adapters and its optimizer.

#include "frameworks/import.h"
#include "frameworks/readers/settings.h"

namespace mpt::frameworks {

/// Sets training of `in`'s layout; what has no counterpart becomes a note. Throws UserError for values of
/// another type or range.
void set_recipe_training(const Settings& recipe, Imported& in);

}  // namespace mpt::frameworks
