// SPDX-License-Identifier: Apache-2.0
#include "models/value_map.h"

namespace mpt::models {
namespace {

class ValueTaker : public ValueVisitor {
 public:
  explicit ValueTaker(Values& values) : values_(values) {}
  using ValueVisitor::count;
  bool sets() const override { return false; }
  void count(Value value, int64_t& place, std::optional<int64_t>, int64_t) override {
    values_[value] = place;
  }
  void real(Value value, double& place, double) override { values_[value] = place; }
  void flag(Value value, bool& place, bool) override { values_[value] = place; }
  void option(Value value, std::optional<double>& place) override {
    if (place) values_[value] = *place;
  }
  void word(Value value, std::string& place, const std::vector<std::string>&) override {
    values_[value] = place;
  }
  void list(Value value, std::vector<std::string>& place) override { values_[value] = place; }

 private:
  Values& values_;
};

class ValueSetter : public ValueVisitor {
 public:
  explicit ValueSetter(const Values& values) : values_(values) {}
  using ValueVisitor::count;
  bool sets() const override { return true; }
  void count(Value value, int64_t& place, std::optional<int64_t> otherwise, int64_t least) override {
    set(value, place, otherwise.value_or(least));
  }
  void real(Value value, double& place, double otherwise) override { set(value, place, otherwise); }
  // A word as value means true: the part that it describes exists.
  void flag(Value value, bool& place, bool otherwise) override {
    place = has(value) ? values_.at(value) != Json(false) : otherwise;
  }
  void option(Value value, std::optional<double>& place) override {
    place.reset();
    if (has(value)) place = values_.at(value).get<double>();
  }
  // A missing value leaves the place unchanged: choice() has set its default.
  void word(Value value, std::string& place, const std::vector<std::string>& known) override {
    if (has(value) && values_.at(value).is_string()) place = values_.at(value).get<std::string>();
    if (!has(value) && !known.empty()) place.clear();
  }
  void list(Value value, std::vector<std::string>& place) override { set(value, place, place); }

 private:
  bool has(Value value) const { return values_.contains(value); }
  template <class T>
  void set(Value value, T& place, const T& otherwise) {
    place = has(value) ? values_.at(value).get<T>() : otherwise;
  }
  const Values& values_;
};

// Visits every branch of visit_values().
class FormTaker : public ValueVisitor {
 public:
  FormTaker(std::map<Value, ValueForm>& forms, bool latent) : forms_(forms), latent_(latent) {}
  using ValueVisitor::count;
  bool sets() const override { return false; }
  void count(Value value, int64_t& place, std::optional<int64_t>, int64_t) override {
    forms_[value].type = ValueType::count;
    place = std::max<int64_t>(place, 1);
  }
  void real(Value value, double&, double) override { forms_[value].type = ValueType::real; }
  void flag(Value value, bool& place, bool) override {
    forms_[value].type = ValueType::flag;
    place = value != Value::latent || latent_;
  }
  void option(Value value, std::optional<double>&) override { forms_[value].type = ValueType::option; }
  void word(Value value, std::string&, const std::vector<std::string>& known) override {
    forms_[value] = {ValueType::word, known};
  }
  void list(Value value, std::vector<std::string>&) override { forms_[value].type = ValueType::list; }

 private:
  std::map<Value, ValueForm>& forms_;
  bool latent_;
};

ModelDraft everything() {
  ModelDraft draft;
  draft.mixers = {"full", "window", "chunk", "sparse", "both", "convolution"};
  draft.mlps = std::vector<std::string>(draft.mixers.size(), "experts");
  draft.model.position = PositionKind::rotary;
  draft.full.rotary.emplace();
  draft.window.rotary.emplace();
  return draft;
}

}  // namespace

Values values_of(const ModelSpec& model) {
  Values values;
  ValueTaker taker(values);
  ModelDraft draft = draft_of(model);
  visit_values(taker, draft);
  return values;
}

ModelSpec model_of(const Values& values) {
  ModelDraft draft;
  ValueSetter setter(values);
  visit_values(setter, draft);
  return model_of(draft);
}

std::optional<Value> first_difference(const ModelSpec& a, const ModelSpec& b) {
  if (same_model(a, b)) return std::nullopt;
  // Parts of layers are named before lists of layers, and values of `a` before those that only `b` has.
  const Values ours = values_of(a), theirs = values_of(b);
  for (const bool lists : {false, true})
    for (const auto& [value, json] : ours) {
      const auto other = theirs.find(value);
      if (json.is_array() == lists && (other == theirs.end() || other->second != json)) return value;
    }
  for (const auto& [value, json] : theirs)
    if (!ours.contains(value)) return value;
  return Value::unequal_layers;
}

const ValueForm* form_of(Value value) {
  static const std::map<Value, ValueForm> forms = [] {
    std::map<Value, ValueForm> found;
    for (const bool latent : {true, false}) {
      FormTaker taker(found, latent);
      ModelDraft draft = everything();
      visit_values(taker, draft);
    }
    return found;
  }();
  return find_value(forms, value);
}

FieldRule rule_of(Value value) {
  static const std::map<Value, FieldRule> rules{
#include "generated/value_rules.inc"
  };
  return copy_of(rules, value).value_or(FieldRule{});
}

std::string text_of(const Json& value) {
  if (value.is_null()) return "none";
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? fmt::format("{}", value.get<double>()) : value.dump();
}

std::optional<Json> value_of(Value value, const std::string& text) {
  const ValueForm* const form = form_of(value);
  if (form == nullptr) return std::nullopt;
  if (text == "true" || text == "false") {
    const bool is_flag = form->type == ValueType::flag || value == Value::rotary_scaling;
    return is_flag ? std::optional<Json>(text == "true") : std::nullopt;
  }
  if (form->type == ValueType::word)
    return contains(form->known, text) ? std::optional<Json>(text) : std::nullopt;
  const Json parsed = Json::parse(text, nullptr, false);
  return parsed.is_number() ? std::optional(parsed) : std::nullopt;
}

}  // namespace mpt::models
