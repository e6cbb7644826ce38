// SPDX-License-Identifier: Apache-2.0
#pragma once

// FamilyWriter: writes the values of a model under the keys that its family has for them.

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "models/family.h"

namespace mpt::models {

/// Values that null switches off; of others null is as absent.
bool null_switches_off(Value value);

class FamilyWriter : public ValueVisitor {
 public:
  FamilyWriter(const Family& family, const ModelSpec& model, const ModelDraft& draft)
      : family_(family), model_(model), draft_(draft) {}

  const Family& family() const { return family_; }
  const ModelSpec& model() const { return model_; }
  /// `path`: "a/b" is b of the object a. The first value of a path stays.
  void put(const std::string& path, Json value);
  /// Under the value's first key, if the family has one.
  void put(Value value, Json what);
  /// The file with its keys in order, and further keys that the class needs.
  Json take();

  bool sets() const override { return false; }
  void count(Value value, int64_t& place, std::optional<int64_t> otherwise, int64_t least) override;
  void real(Value value, double& place, double otherwise) override;
  void flag(Value value, bool& place, bool otherwise) override;
  void option(Value value, std::optional<double>& place) override;
  void word(Value value, std::string& place, const std::vector<std::string>& known) override;
  void scaling(std::optional<RotaryScaling>& place) override;
  void list(Value value, std::vector<std::string>& place) override;

 private:
  double number(Value value) const;
  void shared_width(int64_t width);

  const Family& family_;
  const ModelSpec& model_;
  const ModelDraft& draft_;
  Json json_ = Json::object();
};

}  // namespace mpt::models
