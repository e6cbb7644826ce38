// SPDX-License-Identifier: Apache-2.0
#pragma once

// What frameworks make of types of models: their dialects, frameworks/*/dialect.json, built in, and how
// classes of transformers are written, frameworks/transformers/classes.json.

#include <string>

#include "frameworks/framework.h"
#include "models/dialect.h"

namespace mpt::frameworks {

/// The dialect of the framework of that name, which must be known.
const models::Dialect& dialect_of(const std::string& framework);

/// Reads all of them, and Hugging Face's. Throws UserError for a dialect with a value that no model can have.
void check_dialects();

/// The type of config.json under which a framework takes the model: the model's own, or the framework's first
/// type that gives the same model when read back. Empty: none, or the framework has no types.
std::string type_in(const models::Dialect& dialect, const ModelSpec& model);

/// `execution` as the class of transformers for models of `type` is written, if the framework runs that
/// class.
Execution as_class_of(const std::string& type, const Framework& framework, const Execution& execution);

}  // namespace mpt::frameworks
