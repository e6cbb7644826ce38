// SPDX-License-Identifier: Apache-2.0
#pragma once

// Megatron-LM's flags of a model, and Megatron-Bridge's fields of the same names, in one table: dialect.json.

#include <string>
#include <vector>

#include "core/plan.h"
#include "models/dialect.h"

namespace mpt::frameworks {

/// The values that need code: the table's rows cannot express them.
models::DialectCodes megatron_codes();

/// The words of the plan's model, and settings of the plan that belong to the same words.
std::vector<models::Word> megatron_words(const Plan& plan, const std::string& framework);

}  // namespace mpt::frameworks
