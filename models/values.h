// SPDX-License-Identifier: Apache-2.0
#pragma once

// Value: the vocabulary of dialects for models. A dialect (config.json, Megatron-LM's flags, ...) has words
// for some of the values. models/values.json lists them: those of models, then those of config.json in
// another form than that of a model.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "models/draft.h"

namespace mpt::models {

enum class Value : uint8_t {
#include "generated/value_names.inc"
};

/// Texts that complete "Megatron-LM lacks ..., which llama3-8b has" and "a model with ...".
const std::string& words_of(Value value);

/// Visits the values of a model in one of two directions: it sets them from words, or makes words of them.
/// Each call names a value, its place in the model, and its default without words.
class ValueVisitor {
 public:
  ValueVisitor() = default;
  ValueVisitor& operator=(ValueVisitor&&) = delete;
  virtual ~ValueVisitor() = default;

  /// Whether it sets places; if not, it reads them.
  virtual bool sets() const = 0;
  /// A number of at least `least`. Without a default a word must give it.
  virtual void count(Value value, int64_t& place, std::optional<int64_t> otherwise, int64_t least) = 0;
  void size(Value value, int64_t& place) { count(value, place, std::nullopt, 1); }
  void count(Value value, int64_t& place, int64_t otherwise = 0) { count(value, place, otherwise, 0); }
  void size_or(Value value, int64_t& place, int64_t otherwise) { count(value, place, otherwise, 1); }
  virtual void real(Value value, double& place, double otherwise) = 0;
  virtual void flag(Value value, bool& place, bool otherwise) = 0;
  /// Empty: there is no such cap, factor or limit.
  virtual void option(Value value, std::optional<double>& place) = 0;
  /// One of `known`.
  virtual void word(Value value, std::string& place, const std::vector<std::string>& known) = 0;
  /// Scaling of rotary positions of all layers that have them; visits its values one by one.
  virtual void scaling(std::optional<RotaryScaling>& place);
  /// A word for each layer.
  virtual void list(Value value, std::vector<std::string>& place) = 0;

  template <class E>
  void choice(Value value, E& place, E otherwise) {
    std::string name = enum_name(place);
    word(value, name, enum_names<E>());
    place = enum_value<E>(name).value_or(otherwise);
  }
};

/// Visits all values of `draft` in a fixed order.
void visit_values(ValueVisitor& visitor, ModelDraft& draft);
/// The parts that only some words for layers need, and that follow from these words.
void visit_other_mixers(ValueVisitor& visitor, ModelDraft& draft);
void visit_experts(ValueVisitor& visitor, ModelDraft& draft);

}  // namespace mpt::models
