// SPDX-License-Identifier: Apache-2.0
#pragma once

// Megatron-LM's flags of a model, and Megatron-Bridge's fields of the same names, in one table: dialect.json.

#include "models/dialect.h"

namespace mpt::frameworks {

/// The values that need code: the table's rows cannot express them.
models::DialectCodes megatron_codes();

}  // namespace mpt::frameworks
