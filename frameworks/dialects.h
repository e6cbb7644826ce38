// SPDX-License-Identifier: Apache-2.0
#pragma once

// The dialects of frameworks: frameworks/*/dialect.json, built in.

#include <string>

#include "models/dialect.h"

namespace mpt::frameworks {

/// The dialect of the framework of that name, which must be known.
const models::Dialect& dialect_of(const std::string& framework);

/// Reads all of them, and Hugging Face's. Throws UserError for a dialect with a value that no model can have.
void check_dialects();

/// The type of config.json under which a framework takes the model: the model's own, or the framework's first
/// type that gives the same model when read back. Empty: none, or the framework has no types.
std::string type_in(const models::Dialect& dialect, const ModelSpec& model);

}  // namespace mpt::frameworks
