// SPDX-License-Identifier: Apache-2.0
#pragma once

// FamilyReader: sets the values of a model from a config.json, whatever its family calls them.

#include <optional>
#include <string>
#include <vector>

#include "models/family.h"
#include "models/hf_keys.h"

namespace mpt::models {

struct KeyPlace {
  Config object;
  std::string key;
};
/// The first of the paths under which the file says something, or else null. "a/b" is b of the object a.
std::optional<KeyPlace> find_key(const Config& config, const std::vector<std::string>& paths);

class FamilyReader : public ValueVisitor {
 public:
  /// Reads into `draft`, which visit_values() goes over.
  FamilyReader(const Family& family, Config& config, ModelDraft& draft)
      : family_(family), config_(config), draft_(draft) {}

  Config& config() { return config_; }
  const Family& family() const { return family_; }

  /// At least 1. A value that neither the file nor the family has is a problem.
  int64_t size_of(Value value) { return whole(value, 1, true); }
  /// At least 0; 0 where nobody says anything.
  int64_t count_of(Value value) { return whole(value, 0, false); }
  double real_of(Value value, double otherwise = 0.0);
  std::string word_of(Value value);
  /// Notes that the file does not say the base of its rotary positions.
  void tell_missing_base(double base);
  /// Whether the file has a key of the value, and not null.
  bool says(Value value);

  bool sets() const override { return true; }
  void count(Value value, int64_t& place, std::optional<int64_t> otherwise, int64_t least) override;
  void real(Value value, double& place, double otherwise) override;
  void flag(Value value, bool& place, bool otherwise) override;
  void option(Value value, std::optional<double>& place) override;
  void word(Value value, std::string& place, const std::vector<std::string>& known) override;
  void scaling(std::optional<RotaryScaling>& place) override;
  void list(Value value, std::vector<std::string>& place) override;

 private:
  std::optional<KeyPlace> find(Value value);
  void required(Value value, int64_t& place);
  int64_t whole(Value value, int64_t least, bool required);
  bool has_experts();
  int64_t shared_width();
  int64_t head_size();
  std::optional<double> cap(Value value);
  std::optional<double> factor(Value value);
  std::optional<double> score_scale();
  void activation(std::string& place);

  const Family& family_;
  Config& config_;
  ModelDraft& draft_;
};

}  // namespace mpt::models
