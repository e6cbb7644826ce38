// SPDX-License-Identifier: Apache-2.0
#include "base/values.h"

namespace mpt {

WorkBudget::WorkBudget(std::string file, int64_t most_bytes)
    : file_(std::move(file)), most_(kStepsPerByte * uint64_t(most_bytes)) {}

void WorkBudget::refuse() const {
  refuse_input(file_, fmt::format("reading it takes more than {} steps", most_),
               "a file whose parts do not stand for others over and over");
}

const Json& WorkBudget::copy(const Json& value) {
  spend(kValueSteps + (value.is_string() ? value.get_ref<const std::string&>().size() : 0));
  if (value.is_object())
    for (const auto& [key, member] : value.get_ref<const Json::object_t&>()) spend(key.size());
  if (!value.is_structured()) return value;
  for (const Json& part : value) copy(part);
  return value;
}

Json* ObjectBuilder::find(const std::string& key) {
  if (places_.empty()) {
    const auto found = std::find(keys_.begin(), keys_.end(), key);
    return found == keys_.end() ? nullptr : &values_[size_t(found - keys_.begin())];
  }
  const size_t* const place = find_value(places_, key);
  return place == nullptr ? nullptr : &values_[*place];
}

void ObjectBuilder::set(std::string key, Json value, WorkBudget& budget) {
  constexpr size_t kFew = 16;
  budget.spend(WorkBudget::kValueSteps + key.size());
  if (Json* old = find(key)) {
    *old = std::move(value);
    return;
  }
  keys_.push_back(std::move(key));
  values_.push_back(std::move(value));
  if (keys_.size() <= kFew) return;
  for (size_t i = places_.size(); i < keys_.size(); ++i) places_.emplace(keys_[i], i);
}

void ObjectBuilder::set_all(const Json& object, WorkBudget& budget) {
  for (const auto& [key, member] : object.get_ref<const Json::object_t&>())
    set(key, budget.copy(member), budget);
}

Json ObjectBuilder::take() {
  Json::object_t object;
  object.reserve(keys_.size());
  for (size_t i = 0; i < keys_.size(); ++i) object.emplace_back(std::move(keys_[i]), std::move(values_[i]));
  *this = {};
  return object;
}

Json with_members(const Json& object, const Json& others, const std::string& file) {
  WorkBudget budget(file, kMostJsonBytes);
  ObjectBuilder all;
  all.set_all(object, budget);
  all.set_all(others, budget);
  return all.take();
}

bool DocumentBuilder::add(Json value) {
  budget_.spend(WorkBudget::kValueSteps +
                (value.is_string() ? value.get_ref<const std::string&>().size() : 0));
  put(std::move(value));
  return true;
}

const Json& DocumentBuilder::put(Json value) {
  if (open_.empty()) return root_ = std::move(value);
  Level& level = open_.back();
  if (!level.is_object) return level.items.emplace_back(std::move(value));
  level.members.set(level.key, std::move(value), budget_);
  level.has_key = false;
  return *level.members.find(level.key);
}

bool DocumentBuilder::key(std::string name) {
  Level& level = open_.back();
  if (doubled_ == Doubled::refused && level.members.find(name) != nullptr)
    refuse_input(budget_.file(), fmt::format("the key \"{}\" stands twice", cut_text(name, 80)), "",
                 "remove one");
  level.key = std::move(name);
  level.has_key = true;
  return true;
}

bool DocumentBuilder::open(bool is_object) {
  if (open_.size() >= most_depth_)
    refuse_input(budget_.file(), fmt::format("nesting deeper than {} levels", most_depth_), "",
                 "flatten the document");
  budget_.spend(WorkBudget::kValueSteps);
  open_.push_back({is_object, false, {}, {}, {}});
  return true;
}

const Json& DocumentBuilder::close() {
  Level level = std::move(open_.back());
  open_.pop_back();
  return put(level.is_object ? level.members.take() : Json(std::move(level.items)));
}

}  // namespace mpt
