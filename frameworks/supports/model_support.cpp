// SPDX-License-Identifier: Apache-2.0

// Which models a framework has, by its dialect.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "frameworks/dialects.h"
#include "frameworks/supports/supports.h"
#include "models/family.h"
#include "models/hf_config.h"
#include "models/value_map.h"
#include "models/zoo.h"

namespace mpt::frameworks {
namespace {

using models::Value;

bool has_by_name(const models::Dialect& dialect, ModelSpec model) {
  return std::any_of(dialect.models.begin(), dialect.models.end(), [&](const std::string& name) {
    const ModelSpec known = models::load_model(name);
    model.max_positions = known.max_positions;
    return same_model(model, known);
  });
}

const std::map<std::string, const char*>& words_of_mixers() {
  static const std::map<std::string, const char*> words{{"window", "sliding windows"},
                                                        {"chunk", "attention within chunks"},
                                                        {"sparse", "sparse attention"},
                                                        {"sparse_shared", "sparse attention"},
                                                        {"linear", "linear mixers"},
                                                        {"both", "linear mixers beside attention"},
                                                        {"convolution", "short convolutions"},
                                                        {"none", "layers of one part"},
                                                        {"rotary", "layers without positions beside others"}};
  return words;
}

// What people call the value that the model has.
std::string words_for(Value value, const ModelSpec& model) {
  const models::Values values = models::values_of(model);
  const auto said = values.find(value);
  if (said == values.end()) return models::words_of(value);
  if (value == Value::mixers) {
    for (const Json& mixer : said->second) {
      const auto words = words_of_mixers().find(mixer.get<std::string>());
      if (words != words_of_mixers().end()) return words->second;
    }
  }
  if (!said->second.is_string()) return models::words_of(value);
  const std::string name = replaced(said->second.get<std::string>(), '_', ' ');
  static const std::map<Value, const char*> kinds{{Value::norm, "s"},
                                                  {Value::placement, " norms"},
                                                  {Value::position, " positions"},
                                                  {Value::query_key_norm, " norms of queries and keys"},
                                                  {Value::gate, " gates on the output of attention"},
                                                  {Value::linear_kind, " mixers"},
                                                  {Value::activation, " activations"},
                                                  {Value::router_scores, " router scores"},
                                                  {Value::rotary_scaling, " scaling of rotary positions"}};
  const auto kind = kinds.find(value);
  return kind == kinds.end() ? models::words_of(value) : name + kind->second;
}

// Values describe layers that differ in windows and experts alone. Other layers are asked one by one, where
// the framework has layers that differ.
std::optional<Value> difference_by_layer(const models::Dialect& dialect, const ModelSpec& model) {
  const auto found = models::first_difference(dialect, model);
  const bool one_by_one = std::any_of(dialect.rows.begin(), dialect.rows.end(),
                                      [](const auto& row) { return row.value == Value::unequal_layers; });
  if (!found || !one_by_one || !models::draft_of(model).made) return found;
  for (const auto& [name, kind] : model.layers.kinds) {
    ModelSpec alike = model;
    alike.layers = LayerList(1, kind);
    const bool rotated = !kind.attention || kind.attention->rotary;
    if (model.position == PositionKind::rotary && (!rotated || !kind.attention))
      alike.position = PositionKind::none;
    if (const auto difference = models::first_difference(dialect, alike)) return difference;
  }
  return std::nullopt;
}

// A scaling that only the class knows the numbers of is in the file that the model is from.
bool is_in_its_file(const ModelSpec& model, Value difference) {
  const auto& scaling = model.attention().rotation().scaling;
  return difference == Value::rotary_scaling && scaling && scaling->kind == RotaryScalingKind::other;
}

// Why no type of the framework has the model; empty: one has.
std::string lacking_type(const models::Dialect& dialect, const ModelSpec& model) {
  const auto& types = dialect.types;
  const bool knows = std::find(types.begin(), types.end(), model.type) != types.end();
  std::string type = type_in(dialect, model);
  if (type.empty() && !knows && models::find_family(model.type) != nullptr) return "the type " + model.type;
  if (type.empty()) {
    type = knows ? model.type : types.front();
    const auto difference = models::difference_of_type(models::with_usual_training(model), type);
    if (difference && !(knows && is_in_its_file(model, *difference))) return words_for(*difference, model);
  }
  const models::Values values = models::values_of(model);
  for (const auto& [value, trained_by] : dialect.trained_by) {
    const auto said = values.find(value);
    const bool has = said != values.end() && said->second != Json(0) && said->second != Json(false);
    if (has && std::find(trained_by.begin(), trained_by.end(), type) == trained_by.end())
      return words_for(value, model);
  }
  return "";
}

std::string lacking(const Framework& framework, const ModelSpec& model) {
  const models::Dialect& dialect = dialect_of(framework.name);
  if (!dialect.types.empty()) return lacking_type(dialect, model);
  const auto value = difference_by_layer(dialect, model);
  return !value || has_by_name(dialect, model) ? "" : words_for(*value, model);
}

struct Answer {
  std::string framework;
  ModelSpec model;
  std::string lacks;
};

}  // namespace

// Searches ask for each layout: the last answers are kept.
std::optional<Rejection> lacks_model(const Framework& framework, const ModelSpec& model) {
  if (framework.dialect.empty()) return std::nullopt;
  constexpr size_t kKept = 16;
  thread_local std::vector<Answer> answers;
  auto found = std::find_if(answers.begin(), answers.end(), [&](const Answer& a) {
    return a.framework == framework.name && a.model == model;
  });
  if (found == answers.end()) {
    if (answers.size() == kKept) answers.erase(answers.begin());
    answers.push_back({framework.name, model, lacking(framework, model)});
    found = answers.end() - 1;
  }
  if (found->lacks.empty()) return std::nullopt;
  return Rejection{"model", -1, 0.0, 0.0,
                   fmt::format("{} lacks {}, which {} has", framework.title, found->lacks, model.name)};
}

}  // namespace mpt::frameworks
