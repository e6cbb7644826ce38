// SPDX-License-Identifier: Apache-2.0
#pragma once

// The dialects of frameworks: frameworks/*/dialect.json, built in.

#include <string>

#include "models/dialect.h"

namespace mpt::frameworks {

/// The dialect of the framework of that name, which must be known.
const models::Dialect& dialect_of(const std::string& framework);

/// Reads all of them, and Hugging Face's. Throws UserError for one that says what no model can have.
void check_dialects();

/// The type as which a framework with types takes the model: its own, or the first of the framework's that
/// comes back the same; empty: none.
std::string type_in(const models::Dialect& dialect, const ModelSpec& model);

}  // namespace mpt::frameworks
