// SPDX-License-Identifier: Apache-2.0
#pragma once

// FamilyReader: the values of a config.json by the names of models/families.json, whatever its family calls
// them, and the parts of layers that they make.

#include <optional>
#include <string>

#include "core/model_spec.h"
#include "models/family.h"
#include "models/hf_keys.h"

namespace mpt::models {

class FamilyReader {
 public:
  FamilyReader(const Family& family, Config& config) : family_(family), config_(config) {}

  Config& config() { return config_; }
  const Family& family() const { return family_; }

  /// At least 1. A value that neither the file nor the family has is a problem.
  int64_t size(const std::string& name) { return whole(name, 1, true); }
  /// At least 0; 0 where nobody says anything.
  int64_t count(const std::string& name) { return whole(name, 0, false); }
  double real(const std::string& name);
  bool flag(const std::string& name) { return real(name) != 0.0; }
  /// A size at which scores or logits are capped; nothing: they are not.
  std::optional<double> factor(const std::string& name);
  std::optional<double> cap(const std::string& name);
  std::string word(const std::string& name);
  /// Notes that the file does not say the base of its rotary positions.
  void tell_missing_base(double base);
  /// Whether the file has a key of the value, and not null.
  bool says(const std::string& name);

  /// Everything but the layers.
  ModelSpec model();
  Attention attention();
  /// That of layers with a sliding window, whose heads some models choose apart.
  Attention window_attention(const Attention& full);
  LinearMixer linear();
  Mlp mlp();
  MixtureOfExperts experts(const Mlp& mlp);

 private:
  struct Place {
    Config object;
    std::string key;
  };
  std::optional<Place> find(const std::string& name);
  int64_t whole(const std::string& name, int64_t least, bool required);
  Rotary rotary();
  std::optional<RotaryScaling> scaling();

  const Family& family_;
  Config& config_;
};

}  // namespace mpt::models
