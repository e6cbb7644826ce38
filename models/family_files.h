// SPDX-License-Identifier: Apache-2.0
#pragma once

// Files of a family: its config.json, read and written. FamilyReader sets the values of a model from a file,
// with the family's names for them. FamilyWriter writes them under the keys of the family. Rules give the
// kind of each layer. Pairs of functions handle all that no rule expresses.

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "models/family.h"
#include "models/hf_keys.h"

namespace mpt::models {

struct KeyPlace {
  Config object;
  std::string key;
};
/// The first of the paths that has a value in the file, or else null. "a/b" is b of the object a.
std::optional<KeyPlace> find_key(const Config& config, const std::vector<std::string>& paths);

class FamilyReader : public ValueVisitor {
 public:
  /// Reads into `draft`; visit_values() visits its values.
  FamilyReader(const Family& family, Config& config, ModelDraft& draft)
      : family_(family), config_(config), draft_(draft) {}

  Config& config() { return config_; }
  const Family& family() const { return family_; }

  /// At least 1. A value that is neither in the file nor in the family is a problem.
  int64_t size_of(Value value) { return whole(value, 1, true); }
  /// At least 0; 0 if neither the file nor the family has the value.
  int64_t count_of(Value value) { return whole(value, 0, false); }
  double real_of(Value value, double otherwise = 0.0);
  std::string word_of(Value value);
  /// Notes that the file has no base of its rotary positions.
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

/// Values that null switches off. For other values null is the same as absent.
bool null_switches_off(Value value);

class FamilyWriter : public ValueVisitor {
 public:
  FamilyWriter(const Family& family, const ModelSpec& model, const ModelDraft& draft)
      : family_(family), model_(model), draft_(draft) {}

  const Family& family() const { return family_; }
  const ModelSpec& model() const { return model_; }
  /// `path`: "a/b" is b of the object a. The first value of a path stays.
  void put(const std::string& path, Json value);
  /// Puts it under the value's first key, if the family has one.
  void put(Value value, Json what);
  /// The file with its keys in order, and additional keys that the class needs.
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

/// Words for `layers` layers, from the file.
std::vector<std::string> read_mixers(FamilyReader& reader, int64_t layers);
std::vector<std::string> read_mlps(FamilyReader& reader, int64_t layers);
/// Writes the entries for these words. Layers that the rule cannot describe are left out.
void write_mixers(FamilyWriter& writer, const std::vector<std::string>& mixers);
void write_mlps(FamilyWriter& writer, const std::vector<std::string>& mlps);

/// The exceptions of a family. `read` completes the draft after the rules have read a file. `write` prepares
/// a draft for the rules, and writes further keys. Null: nothing.
struct FamilyCode {
  void (*read)(FamilyReader& reader, ModelDraft& draft) = nullptr;
  void (*write)(FamilyWriter& writer, ModelDraft& draft) = nullptr;
};
FamilyCode family_code(const Family& family);

/// Models with attention over pooled tokens (DeepSeek-V4).
FamilyCode deepseek_v4();
/// Models in which each block is one part, or blocks differ one by one (Nemotron-H, Nemotron-NAS).
FamilyCode nemotron_h();
FamilyCode nemotron_nas();

}  // namespace mpt::models
