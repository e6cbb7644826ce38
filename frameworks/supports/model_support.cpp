// SPDX-License-Identifier: Apache-2.0

// The models that a framework has, by its dialect.

#include <deque>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "frameworks/asked.h"
#include "frameworks/dialects.h"
#include "frameworks/framework.h"
#include "frameworks/supports/supports.h"
#include "models/family.h"
#include "models/hf_config.h"
#include "models/value_map.h"
#include "models/zoo.h"

namespace mpt::frameworks {
namespace {

using models::Value;

bool has_by_name(const models::Dialect& dialect, ModelSpec model) {
  return any_of(dialect.models, [&](const std::string& name) {
    const ModelSpec known = models::load_model(name);
    model.max_positions = known.max_positions;
    return same_model(model, known);
  });
}

const std::map<std::string, const char*>& words_of_mixers() {
  static const std::map<std::string, const char*> words{
#include "generated/LayerWords.inc"
  };
  return words;
}

// Common words for the value that the model has.
std::string words_for(Value value, const ModelSpec& model) {
  const models::Values values = models::values_of(model);
  const auto said = values.find(value);
  if (said == values.end()) return models::words_of(value);
  if (value == Value::mixers)
    for (const Json& mixer : said->second) {
      const auto words = words_of_mixers().find(mixer.get<std::string>());
      if (words != words_of_mixers().end()) return words->second;
    }
  if (!said->second.is_string()) return models::words_of(value);
  const std::string name = replaced(said->second.get<std::string>(), '_', ' ');
  static const std::map<std::string, const char*> kinds{
#include "generated/KindWords.inc"
  };
  const auto kind = kinds.find(enum_name(value));
  return kind == kinds.end() ? models::words_of(value) : name + kind->second;
}

// Values describe layers that differ only in windows and experts. Layers that differ in more are checked one
// by one, if the framework has layers that differ.
std::optional<Value> difference_by_layer(const models::Dialect& dialect, const ModelSpec& model) {
  const auto found = models::first_difference(dialect, model);
  const bool one_by_one =
      any_of(dialect.rows, [](const auto& row) { return row.value == Value::unequal_layers; });
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

// A scaling with numbers that only the class knows is in the model's original file.
bool is_in_its_file(const ModelSpec& model, Value difference) {
  const auto& scaling = model.attention().rotation().scaling;
  return difference == Value::rotary_scaling && scaling && scaling->kind >= RotaryScalingKind::longrope;
}

// Whether a config.json of the model's type describes all of the model.
bool is_of_its_type(const ModelSpec& model) {
  if (models::find_family(model.type) == nullptr) return false;
  const auto difference = models::difference_of_type(models::with_usual_training(model), model.type);
  return !difference || is_in_its_file(model, *difference);
}

bool trains_next_tokens(const models::Dialect& dialect, const std::string& type) {
  const auto trained = dialect.trained_by.find(Value::next_token_layers);
  if (trained != dialect.trained_by.end()) return contains(trained->second, type);
  return any_of(dialect.rows, [](const auto& row) { return row.value == Value::next_token_layers; });
}

// A value that no type of the framework has; empty: one type has them all.
std::string lacking_type(const models::Dialect& dialect, const ModelSpec& model) {
  const auto& types = dialect.types;
  const bool knows = contains(types, model.type);
  std::string type = type_in(dialect, model);
  if (type.empty() && !knows && models::find_family(model.type) != nullptr) return "the type " + model.type;
  if (type.empty()) {
    type = knows ? model.type : types.front();
    const auto difference = models::difference_of_type(models::with_usual_training(model), type);
    if (difference && !(knows && is_in_its_file(model, *difference))) return words_for(*difference, model);
  }
  if (model.next_token_layers == 0 || trains_next_tokens(dialect, type)) return "";
  return models::words_of(Value::next_token_layers);
}

struct Unsupported {
  std::string what;  // empty: nothing
  Value value = Value::unequal_layers;
};

Unsupported lacking(const models::Dialect& dialect, const ModelSpec& model) {
  if (!dialect.types.empty()) return {lacking_type(dialect, model)};
  const auto value = difference_by_layer(dialect, model);
  if (!value || has_by_name(dialect, model)) return {};
  return {words_for(*value, model), *value};
}

// The place where the package has all values that the dialect lacks; empty: it lacks some of them, too.
std::string place_of_parts(const Asked& asked, const models::Dialect& dialect, const ModelSpec& model) {
  const models::Values values = models::values_of(model);
  std::string place;
  for (const Value value : models::differences(dialect, model)) {
    place = asked.place_of(value, values.contains(value) ? values.at(value) : Json());
    if (place.empty()) break;
  }
  return place;
}

// The first package that has the type; empty: none.
std::string place_of_type(const Asked& asked, const std::string& type) {
  for (const AskedRegistry& registry : asked.registries)
    if (std::string place = registry.place_of(type); !place.empty()) return place;
  return "";
}

ModelVerdict judged(const Framework& framework, const ModelSpec& model) {
  const models::Dialect& dialect = dialect_of(framework.name);
  const auto not_run = [&](const std::string& what, const std::string& source) {
    return ModelVerdict{VerdictKind::not_run,
                        fmt::format("{} lacks {}, which {} has", framework.title, what, model.name), source};
  };
  const auto& ties = framework.abilities.fixed_ties;
  if (const auto own = ties.find(model.type); own != ties.end() && own->second != model.tied_embeddings)
    return not_run(own->second ? "a head of its own" : "tied embeddings", framework.sources.at("fixed_ties"));
  const Unsupported lack = lacking(dialect, model);
  if (lack.what.empty()) return {};
  const Asked* const asked = asked_of(framework);
  if (asked == nullptr) return not_run(lack.what, framework.title + ", " + dialect.source);
  if (model.next_token_layers > 0 && !trains_next_tokens(dialect, model.type))
    return not_run(models::words_of(Value::next_token_layers), dialect.source);
  const AskedRegistry& own = asked->registries.front();
  const bool of_its_type = is_of_its_type(model);
  std::string place = of_its_type || own.any ? place_of_type(*asked, model.type) : "";
  if (place.empty()) place = place_of_parts(*asked, dialect, model);
  if (!place.empty())
    return {VerdictKind::not_written,
            fmt::format("{} runs {} ({}), and MPT does not write {} for it yet: the plan has no export",
                        framework.title, model.name, place, lack.what),
            place};
  const auto known = dialect.lacks.find(lack.value);
  if (dialect.types.empty() && known != dialect.lacks.end()) return not_run(lack.what, known->second);
  if (of_its_type && !own.classes.empty()) return not_run("the type " + model.type, own.place());
  return {VerdictKind::not_judged,
          fmt::format("MPT cannot judge whether {} runs {}: what was asked of it names no model with {} and "
                      "its other parts",
                      framework.title, model.name, lack.what),
          own.place()};
}

struct Answer {
  std::string framework;
  ModelSpec model;
  ModelVerdict verdict;
};

}  // namespace

// Searches ask for each layout, so the last answers are kept.
const ModelVerdict& verdict_on(const Framework& framework, const ModelSpec& model) {
  constexpr size_t kKept = 16;
  thread_local std::deque<Answer> answers;
  static const ModelVerdict any_model;
  if (framework.dialect.empty()) return any_model;
  const auto found =
      find_if(answers, [&](const Answer& a) { return a.framework == framework.name && a.model == model; });
  if (found != answers.end()) return found->verdict;
  if (answers.size() == kKept) answers.pop_front();
  answers.push_back({framework.name, model, judged(framework, model)});
  return answers.back().verdict;
}

bool trains(const Framework& framework, const ModelSpec& model, const Training& training, Precision type) {
  return !supports_training(framework, training) &&
         !supports_model(framework, trained_by(framework, model), type);
}

std::vector<std::string> frameworks_that_train(const ModelSpec& model, const Training& training,
                                               Precision precision) {
  std::vector<std::string> names, unwritten;
  for (const Framework& framework : known_frameworks()) {
    if (!trains(framework, model, training, precision)) continue;
    const bool written =
        verdict_on(framework, trained_by(framework, model), training).verdict == VerdictKind::exported;
    (written ? names : unwritten).push_back(framework.name);
  }
  names.insert(names.end(), unwritten.begin(), unwritten.end());
  return names;
}

ModelSpec trained_by(const Framework& framework, ModelSpec model) {
  if (framework.dialect.empty() || model.next_token_layers == 0) return model;
  const models::Dialect& dialect = dialect_of(framework.name);
  ModelSpec without = model;
  without.next_token_layers = 0;
  const std::string type = dialect.types.empty() ? "" : type_in(dialect, model);
  return trains_next_tokens(dialect, type.empty() ? model.type : type) ? model : without;
}

std::optional<Rejection> lacks_model(const Framework& framework, const ModelSpec& model) {
  const ModelVerdict& verdict = verdict_on(framework, model);
  if (verdict.verdict == VerdictKind::exported || verdict.verdict == VerdictKind::not_written)
    return std::nullopt;
  return Rejection{"model", -1, 0.0, 0.0, fmt::format("{} ({})", verdict.reason, verdict.source)};
}

void check_own_runtime(const ModelSpec& model) {
  if (const auto lacking = lacks_model(own_runtime(), model))
    refuse_input(fmt::format("model \"{}\"", model.name), lacking->reason,
                 "a model that mpt-run can compute: docs/training.md lists its parts",
                 "another framework can train it: mpt-plan, without --profile, then mpt-plan export");
}

}  // namespace mpt::frameworks
