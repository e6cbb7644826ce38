// SPDX-License-Identifier: Apache-2.0
#pragma once

// Values: a model by the names of models/values.h. Dialects write them, and models are compared by them.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/values.h"
#include "core/model_spec.h"
#include "models/values.h"

namespace mpt::models {

/// A number, a truth value, a word, or a list of words. Parts that a model lacks have no values.
using Values = std::map<Value, Json>;

Values values_of(const ModelSpec& model);
/// Missing values take the defaults of visit_values().
ModelSpec model_of(const Values& values);

/// The first value in which the models differ, names ignored; nothing: they are equal.
std::optional<Value> first_difference(const ModelSpec& a, const ModelSpec& b);

enum class ValueType { count, real, option, flag, word, list };
struct ValueForm {
  ValueType type = ValueType::count;
  std::vector<std::string> known;  // words
};
/// Nothing if no model has the value in this form ("file" in models/values.json).
const ValueForm* form_of(Value value);
/// The range of a number: that of the field that holds it.
FieldRule rule_of(Value value);

/// The text in tables and notes; "none" for null.
std::string text_of(const Json& value);
/// The inverse of text_of(); nothing if no such value is known.
std::optional<Json> value_of(Value value, const std::string& text);

}  // namespace mpt::models
