// SPDX-License-Identifier: Apache-2.0
#include "models/family_files.h"

#include "base/quantity.h"

namespace mpt::models {
namespace {

constexpr int64_t kMostLayers = 100000;

// The value that must be true for the word to apply.
std::optional<Value> condition_of(Value value) {
  if (value == Value::query_key_norm) return Value::query_key_norm_if;
  if (value == Value::gate) return Value::gate_if;
  return std::nullopt;
}

}  // namespace

bool null_switches_off(Value value) {
  return value == Value::window || value == Value::query_rank || value == Value::shared_count ||
         value == Value::chunk || value == Value::latent_width || value == Value::residual_block;
}

std::optional<KeyPlace> find_key(const Config& config, const std::vector<std::string>& paths) {
  std::optional<KeyPlace> first, null;
  for (const std::string& path : paths) {
    Config object = config;
    std::string rest = path;
    for (size_t slash = rest.find('/'); slash != std::string::npos; slash = rest.find('/')) {
      object = object.inner(rest.substr(0, slash).c_str());
      rest = rest.substr(slash + 1);
    }
    // Alternative names are also marked as read if the first has a value.
    const bool has = object.has(rest.c_str());
    // transformers 5 reads rope_parameters before the older keys.
    if (has && (!first || path.starts_with("rope_parameters/"))) first = KeyPlace{object, rest};
    if (!has && !object.absent(rest.c_str()) && !null) null = KeyPlace{object, rest};
  }
  return first ? first : null;
}

std::optional<KeyPlace> FamilyReader::find(Value value) {
  const auto* const keys = find_value(family_.keys, value);
  return keys == nullptr ? std::nullopt : find_key(config_, *keys);
}

bool FamilyReader::says(Value value) {
  const auto place = find(value);
  return place && place->object.has(place->key.c_str());
}

int64_t FamilyReader::whole(Value name, int64_t least, bool required) {
  if (const auto place = find(name)) {
    Config object = place->object;
    if (object.has(place->key.c_str()))
      return least > 0 ? object.size(place->key.c_str()) : object.count_or(place->key.c_str(), 0);
    if (null_switches_off(name)) return 0;
  }
  if (const auto* value = find_value(family_.numbers, name)) return int64_t(*value);
  if (!required) return 0;
  const std::string key = family_.has_keys(name) ? family_.keys.at(name).front() : enum_name(name);
  return config_.size(key.c_str());
}

double FamilyReader::real_of(Value name, double otherwise) {
  otherwise = copy_of(family_.numbers, name).value_or(otherwise);
  const auto place = find(name);
  if (!place) return otherwise;
  Config object = place->object;
  if (object.is_flag(place->key.c_str())) return object.flag_or(place->key.c_str(), false) ? 1.0 : 0.0;
  return object.real_or(place->key.c_str(), otherwise);
}

std::string FamilyReader::word_of(Value value) {
  std::string otherwise = copy_of(family_.words, value).value_or("");
  auto place = find(value);
  return place ? place->object.text_or(place->key.c_str(), otherwise) : otherwise;
}

void FamilyReader::tell_missing_base(double base) {
  config_.tell(fmt::format("rope_theta is missing: {}, the default of this type, is used",
                           format_count(int64_t(base))));
}

void FamilyReader::required(Value value, int64_t& place) {
  if (value == Value::ffn && count_of(Value::ffn_of_hidden) > 0 && !says(Value::ffn)) {
    place = count_of(Value::ffn_of_hidden) * draft_.model.hidden;
    return;
  }
  place = size_of(value);
  if (value != Value::layers || place <= kMostLayers) return;
  config_.add(family_.keys.at(value).front().c_str(), fmt::format("{} layers", place),
              fmt::format("at most {}", kMostLayers));
  place = 1;
}

// By default the size of a head is hidden / heads. The classes refuse sizes that do not divide.
int64_t FamilyReader::head_size() {
  const int64_t hidden = draft_.model.hidden, heads = draft_.full.heads;
  if (!config_.failed() && hidden % heads != 0)
    config_.add(family_.keys.at(Value::hidden).front().c_str(),
                fmt::format("width {} for {} heads", hidden, heads), "a multiple of the heads");
  return std::max<int64_t>(1, hidden / heads);
}

int64_t FamilyReader::shared_width() {
  if (says(Value::shared_ffn)) return count_of(Value::shared_ffn);
  const auto each = says(Value::shared_each) ? count_of(Value::shared_each) : draft_.moe->expert.ffn_hidden;
  return count_of(Value::shared_count) * each;
}

void FamilyReader::count(Value value, int64_t& place, std::optional<int64_t> otherwise, int64_t least) {
  if (!otherwise) return required(value, place);
  if (value == Value::shared_ffn) {
    place = shared_width();
    return;
  }
  const bool strict = value == Value::kv_heads || value == Value::head_dim;
  const int64_t said = strict && says(value) ? size_of(value) : count_of(value);
  const bool is_said = said > 0 || says(value) || family_.numbers.contains(value);
  place = is_said && said >= least ? said : value == Value::head_dim ? head_size() : *otherwise;
}

void FamilyReader::real(Value value, double& place, double otherwise) {
  place = real_of(value, otherwise);
  // 0 means that there is none.
  if (value == Value::routed_scale || value == Value::window_rotary_base ||
      value == Value::window_rotary_fraction)
    place = place > 0.0 ? place : otherwise;
  if (value == Value::rotary_fraction && count_of(Value::rotary_dims) > 0)
    place = double(count_of(Value::rotary_dims)) / double(draft_.full.head_dim);
  if (value == Value::rotary_base && family_.has_keys(value) && !says(value)) tell_missing_base(place);
}

void FamilyReader::flag(Value value, bool& place, bool otherwise) {
  place = real_of(value, otherwise ? 1.0 : 0.0) != 0.0;
  if (value == Value::window_unscaled) place = real_of(Value::window_rotary_base) > 0.0;
  if (value == Value::latent) place = family_.has_keys(Value::kv_rank);
}

// Null switches a cap off, even if the class has a default for an absent key.
std::optional<double> FamilyReader::cap(Value value) {
  const auto place = find(value);
  if (place && !Config(place->object).has(place->key.c_str())) return std::nullopt;
  const double size = real_of(value);
  return size > 0.0 ? std::optional(size) : std::nullopt;
}

// A factor that changes something, or nothing.
std::optional<double> FamilyReader::factor(Value value) {
  const double factor = real_of(value);
  return factor > 0.0 && factor != 1.0 ? std::optional(factor) : std::nullopt;
}

std::optional<double> FamilyReader::score_scale() {
  std::optional<double> scale;
  const auto head = double(draft_.full.head_dim);
  const double as = real_of(Value::scores_scaled_as), given = real_of(Value::score_factor);
  if (as > 0.0 && as != head) scale = 1.0 / std::sqrt(as);
  if (given > 0.0 && given != 1.0 / std::sqrt(head)) scale = given;
  return scale;
}

void FamilyReader::option(Value value, std::optional<double>& place) {
  if (value == Value::embedding_scale) {
    place = factor(Value::embedding_factor);
    if (real_of(Value::scaled_embedding) != 0.0) place = std::sqrt(double(draft_.model.hidden));
  } else if (value == Value::residual_scale) {
    place = factor(Value::residual_factor);
  } else if (value == Value::logit_scale) {
    place = factor(Value::logit_factor);
    if (const auto divisor = factor(Value::logit_divisor)) place = 1.0 / *divisor;
  } else {
    place = value == Value::score_scale ? score_scale() : cap(value);
  }
}

void FamilyReader::activation(std::string& place) {
  const std::string name = word_of(Value::activation);
  const std::vector<ActivationName>& names = activation_names();
  const auto found = find_if(names, [&](const ActivationName& a) { return a.name == name; });
  if (found == names.end())
    return config_.refuse("hidden_act", "unknown activation \"" + name.substr(0, 40) + "\"");
  place = enum_name(found->kind);
}

void FamilyReader::word(Value value, std::string& place, const std::vector<std::string>& known) {
  if (value == Value::activation) return activation(place);
  const auto condition = condition_of(value);
  const bool holds = !condition || !family_.keys.contains(*condition) || real_of(*condition) != 0.0;
  const std::string name = holds ? word_of(value) : "";
  if (!name.empty() && !contains(known, name)) {
    const auto at = find(value);
    return config_.refuse(
        at ? at->key.c_str() : enum_name(value).c_str(),
        fmt::format("\"{}\", which is none of {}", name.substr(0, 40), joined(known, ", ")));
  }
  place = name;
}

// "rope_scaling", or since transformers 5 the same keys in "rope_parameters", in some by kind of layer.
void FamilyReader::scaling(std::optional<RotaryScaling>& place) {
  place.reset();
  Config scaling = config_.inner(config_.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
  if (scaling.has("full_attention")) scaling = scaling.inner("full_attention");
  std::string type = scaling.text_or("rope_type", scaling.text_or("type", "default"));
  if (type == "su") type = "longrope";  // its name before transformers 4.43
  const char* const original = "original_max_position_embeddings";
  const bool beside = config_.has(original);  // this marks the key as read, even without a scaling
  if (type == "default" || type == "mrope") return;
  const int64_t positions = draft_.model.max_positions;
  RotaryScaling& s = place.emplace();
  s.factor = scaling.real_or("factor", 1.0);
  // transformers/modeling_rope_utils.py, _compute_yarn_parameters; OLMo 3's files have it, too.
  const double usual = 0.1 * std::log(std::max(1.0, s.factor)) + 1.0;
  const bool yarn = type == "yarn" && (scaling.absent("attention_factor") || scaling.absent("mscale")) &&
                    std::abs(scaling.real_or("attention_factor", usual) - usual) < 1e-6;
  s.kind = enum_value<RotaryScalingKind>(type).value_or(RotaryScalingKind::other);
  if (type == "yarn" && !yarn) s.kind = RotaryScalingKind::other;
  if (s.kind == RotaryScalingKind::llama3) {
    s.low_frequency_factor = scaling.real_or("low_freq_factor", 1.0);
    s.high_frequency_factor = scaling.real_or("high_freq_factor", 4.0);
    s.original_positions = scaling.size_or(original, 8192);
  }
  if (yarn) {  // transformers/modeling_rope_utils.py, _compute_yarn_parameters
    s.original_positions = scaling.size_or(original, positions);
    s.beta_fast = scaling.real_or("beta_fast", 32.0);
    s.beta_slow = scaling.real_or("beta_slow", 1.0);
    s.mscale = scaling.real_or("mscale", 0.0);
    s.mscale_all_dim = scaling.real_or("mscale_all_dim", 0.0);
    s.whole_dimensions = scaling.flag_or("truncate", true);
  }
  if (s.kind >= RotaryScalingKind::longrope) {
    const int64_t otherwise = s.kind == RotaryScalingKind::other ? s.original_positions : positions;
    s.original_positions = scaling.size_or(original, beside ? config_.size(original) : otherwise);
  }
  // transformers/modeling_rope_utils.py, _compute_longrope_parameters
  if (type == "longrope" && s.original_positions < positions)
    s.factor = double(positions) / double(s.original_positions);
}

// A family with experts has none if the file gives 0, or if the family has 0 for files without the key.
bool FamilyReader::has_experts() {
  const bool known = says(Value::experts) || family_.numbers.contains(Value::experts);
  return family_.has_keys(Value::experts) && !(known && count_of(Value::experts) == 0);
}

void FamilyReader::list(Value value, std::vector<std::string>& place) {
  const auto layers = int64_t(place.size());
  if (value == Value::mixers) place = read_mixers(*this, layers);
  if (value == Value::mlps && has_experts()) place = read_mlps(*this, layers);
}

}  // namespace mpt::models
