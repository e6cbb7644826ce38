// SPDX-License-Identifier: Apache-2.0
#include "models/family_files.h"

namespace mpt::models {
namespace {

Json scaling_json(const RotaryScaling& s) {
  Json scaling{{"rope_type", enum_name(s.kind)}, {"factor", s.factor}};
  if (s.kind == RotaryScalingKind::llama3) {
    scaling["low_freq_factor"] = s.low_frequency_factor;
    scaling["high_freq_factor"] = s.high_frequency_factor;
    scaling["original_max_position_embeddings"] = s.original_positions;
  } else if (s.kind == RotaryScalingKind::yarn) {
    scaling["original_max_position_embeddings"] = s.original_positions;
    scaling["beta_fast"] = s.beta_fast;
    scaling["beta_slow"] = s.beta_slow;
    scaling["truncate"] = s.whole_dimensions;
    if (s.mscale > 0.0) scaling["mscale"] = s.mscale;
    if (s.mscale_all_dim > 0.0) scaling["mscale_all_dim"] = s.mscale_all_dim;
  }
  return scaling;
}

}  // namespace

void FamilyWriter::put(const std::string& path, Json value) {
  const Json::json_pointer place("/" + path);
  if (!json_.contains(place)) json_[place] = std::move(value);
}

void FamilyWriter::put(Value value, Json what) {
  if (family_.has_keys(value)) put(family_.keys.at(value).front(), std::move(what));
}

Json FamilyWriter::take() {
  for (const auto& [key, number] : family_.also) put(key, number);
  // The class has default numbers of tokens that a smaller vocabulary lacks.
  for (const char* token : {"pad_token_id", "bos_token_id", "eos_token_id"})
    if (model_.vocab < family_.least_vocab) put(token, nullptr);
  return json_.get<std::map<std::string, Json>>();
}

double FamilyWriter::number(Value value) const { return copy_of(family_.numbers, value).value_or(0.0); }

void FamilyWriter::shared_width(int64_t width) {
  if (family_.has_keys(Value::shared_ffn)) return put(Value::shared_ffn, width);
  if (family_.has_keys(Value::shared_each)) {
    put(Value::shared_count, width > 0 ? 1 : 0);
    return put(Value::shared_each, width);
  }
  put(Value::shared_count, width / std::max<int64_t>(1, draft_.moe->expert.ffn_hidden));
}

void FamilyWriter::count(Value value, int64_t& place, std::optional<int64_t>, int64_t) {
  if (value == Value::shared_ffn) return shared_width(place);
  // Null is written if an absent key has another meaning than none; few classes accept null elsewhere.
  const bool none = place == 0 && null_switches_off(value);
  // Classes that list their layers make a mask of the window without such layers, too (transformers 5.24.0).
  // Exaone 4's takes null for positions in all layers.
  const bool masks = !family_.mixers.list.empty() && number(Value::full_without_rotary) == 0.0;
  if (!none || number(value) != 0.0)
    put(value, !none ? Json(place) : value == Value::window && masks ? Json(model_.max_positions) : Json());
  // Classes with latent attention still need the number of key-value heads, and their default may differ.
  if (value == Value::kv_rank) put(Value::kv_heads, draft_.full.kv_heads);
}

void FamilyWriter::real(Value value, double& place, double) {
  if (value == Value::rotary_fraction) {
    put(Value::rotary_dims, std::llround(place * double(draft_.full.head_dim)));
    if (place == number(value)) return;  // few classes know the key
  }
  // A separate base means that layers with windows are not scaled.
  const auto& windowed = draft_.window.rotary;
  if (value == Value::window_rotary_base && windowed && windowed->scaling) return;
  put(value, place);
}

void FamilyWriter::flag(Value value, bool& place, bool) { put(value, place); }

void FamilyWriter::option(Value value, std::optional<double>& place) {
  const auto head = double(draft_.full.head_dim);
  if (value == Value::embedding_scale) {
    put(Value::embedding_factor, place.value_or(1.0));
  } else if (value == Value::residual_scale) {
    put(Value::residual_factor, place.value_or(1.0));
  } else if (value == Value::logit_scale) {
    put(Value::logit_factor, place.value_or(1.0));
    put(Value::logit_divisor, 1.0 / place.value_or(1.0));
  } else if (value == Value::score_scale) {
    // Classes accept only whole numbers.
    put(Value::scores_scaled_as, place ? std::llround(1.0 / (*place * *place)) : draft_.full.head_dim);
    put(Value::score_factor, place.value_or(1.0 / std::sqrt(head)));
  } else {
    put(value, place ? Json(*place) : Json(nullptr));
  }
}

// The family's name of the activation, if the name means the model's activation.
void FamilyWriter::word(Value value, std::string& place, const std::vector<std::string>&) {
  if (value == Value::query_key_norm) put(Value::query_key_norm_if, place != "none");
  if (value == Value::gate) put(Value::gate_if, place != "none");
  if (value != Value::activation) return put(value, place);
  const auto usual = family_.words.find(value);
  std::string name;
  for (const ActivationName& known : activation_names()) {
    if (enum_name(known.kind) != place) continue;
    if (name.empty() || (usual != family_.words.end() && usual->second == known.name)) name = known.name;
  }
  put(value, name);
}

void FamilyWriter::scaling(std::optional<RotaryScaling>& place) {
  // For another kind, only the class knows the numbers.
  const bool by_layer = json_.contains("rope_parameters");
  if (place ? place->kind >= RotaryScalingKind::longrope : !by_layer) return;
  const Json keys = place ? scaling_json(*place) : Json{{"rope_type", "default"}};
  for (const auto& [key, value] : keys.items())
    put((by_layer ? "rope_parameters/full_attention/" : "rope_scaling/") + key, value);
}

void FamilyWriter::list(Value value, std::vector<std::string>& place) {
  if (value == Value::mixers) write_mixers(*this, place);
  if (value == Value::mlps && draft_.moe) write_mlps(*this, place);
}

}  // namespace mpt::models
