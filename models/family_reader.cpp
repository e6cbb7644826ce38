// SPDX-License-Identifier: Apache-2.0
#include "models/family_reader.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/quantity.h"

namespace mpt::models {
namespace {

std::optional<ActivationKind> activation_named(const std::string& name) {
  static const std::map<std::string, ActivationKind> kinds{
      {"gelu", ActivationKind::gelu},           {"gelu_new", ActivationKind::gelu_tanh},
      {"gelu_fast", ActivationKind::gelu_tanh}, {"gelu_pytorch_tanh", ActivationKind::gelu_tanh},
      {"gelu_tanh", ActivationKind::gelu_tanh}, {"silu", ActivationKind::silu},
      {"swish", ActivationKind::silu},          {"swigluoai", ActivationKind::silu},
      {"relu", ActivationKind::relu},           {"relu2", ActivationKind::squared_relu},
      {"xielu", ActivationKind::xielu},         {"situ", ActivationKind::situ}};
  const auto found = kinds.find(name);
  return found == kinds.end() ? std::nullopt : std::optional(found->second);
}

// Values that null switches off; of others null is as absent.
bool null_is_none(const std::string& name) {
  return name == "window" || name == "query_rank" || name == "shared_count" || name == "chunk";
}

}  // namespace

std::optional<FamilyReader::Place> FamilyReader::find(const std::string& name) {
  const auto keys = family_.keys.find(name);
  if (keys == family_.keys.end()) return std::nullopt;
  std::optional<Place> first, null;
  for (const std::string& path : keys->second) {
    Config object = config_;
    std::string rest = path;
    for (size_t slash = rest.find('/'); slash != std::string::npos; slash = rest.find('/')) {
      object = object.inner(rest.substr(0, slash).c_str());
      rest = rest.substr(slash + 1);
    }
    // Further names of the value are known, too, where the first has it.
    const bool has = object.has(rest.c_str());
    if (has && !first) first = Place{object, rest};
    if (!has && !object.absent(rest.c_str()) && !null) null = Place{object, rest};
  }
  return first ? first : null;
}

bool FamilyReader::says(const std::string& name) {
  const auto place = find(name);
  return place && place->object.has(place->key.c_str());
}

int64_t FamilyReader::whole(const std::string& name, int64_t least, bool required) {
  if (const auto place = find(name)) {
    Config object = place->object;
    if (object.has(place->key.c_str()))
      return least > 0 ? object.size(place->key.c_str()) : object.count_or(place->key.c_str(), 0);
    if (null_is_none(name)) return 0;
  }
  const auto value = family_.numbers.find(name);
  if (value != family_.numbers.end()) return int64_t(value->second);
  if (!required) return 0;
  const auto keys = family_.keys.find(name);
  const std::string key = keys == family_.keys.end() || keys->second.empty() ? name : keys->second.front();
  return config_.size(key.c_str());
}

double FamilyReader::real(const std::string& name) {
  const auto value = family_.numbers.find(name);
  const double otherwise = value != family_.numbers.end() ? value->second : 0.0;
  const auto place = find(name);
  if (!place) return otherwise;
  Config object = place->object;
  if (object.is_flag(place->key.c_str())) return object.flag_or(place->key.c_str(), false) ? 1.0 : 0.0;
  return object.real_or(place->key.c_str(), otherwise);
}

// Null switches a cap off, whatever the class takes for an absent one.
std::optional<double> FamilyReader::cap(const std::string& name) {
  const auto place = find(name);
  if (place && !Config(place->object).has(place->key.c_str())) return std::nullopt;
  const double value = real(name);
  return value > 0.0 ? std::optional(value) : std::nullopt;
}

// One that changes something.
std::optional<double> FamilyReader::factor(const std::string& name) {
  const double value = real(name);
  return value > 0.0 && value != 1.0 ? std::optional(value) : std::nullopt;
}

std::string FamilyReader::word(const std::string& name) {
  const auto known = family_.words.find(name);
  std::string otherwise = known != family_.words.end() ? known->second : "";
  const auto place = find(name);
  if (!place) return otherwise;
  Config object = place->object;
  return object.text_or(place->key.c_str(), otherwise);
}

ModelSpec FamilyReader::model() {
  ModelSpec m;
  m.hidden = size("hidden");
  m.vocab = size("vocab");
  m.max_positions = size("max_positions");
  m.norm = enum_value<NormKind>(word("norm")).value_or(NormKind::rms_norm);
  m.norm_placement = enum_value<NormPlacement>(word("placement")).value_or(NormPlacement::pre);
  if (m.norm == NormKind::layer_norm) m.norm_bias = flag("norm_bias");
  m.norm_epsilon = real("norm_epsilon");
  m.parallel_residual = flag("parallel_residual");
  m.embedding_norm = flag("embedding_norm");
  m.position = enum_value<PositionKind>(word("position")).value_or(PositionKind::rotary);
  m.tied_embeddings = flag("tied");
  m.head_bias = flag("head_bias");
  m.logit_cap = cap("logit_cap");
  m.embedding_scale = factor("embedding_factor");
  if (flag("scaled_embedding")) m.embedding_scale = std::sqrt(double(m.hidden));
  m.residual_scale = factor("residual_factor");
  m.logit_scale = factor("logit_factor");
  if (const auto divisor = factor("logit_divisor")) m.logit_scale = 1.0 / *divisor;
  m.next_token_layers = count("next_token_layers");
  m.residual_streams = std::max<int64_t>(1, count("residual_streams"));
  m.layer_embedding = count("layer_embedding");
  if (m.layer_embedding > 0) m.layer_vocab = count("layer_vocab");
  return m;
}

// "rope_scaling", or since transformers 5 the same keys in "rope_parameters", for each kind of layer in some.
std::optional<RotaryScaling> FamilyReader::scaling() {
  Config scaling = config_.inner(config_.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
  if (scaling.has("full_attention")) scaling = scaling.inner("full_attention");
  const std::string type = scaling.text_or("rope_type", scaling.text_or("type", "default"));
  const char* const original = "original_max_position_embeddings";
  const bool beside = config_.has(original);  // where it says nothing without a scaling, it is read, too
  if (type == "default" || type == "mrope") return std::nullopt;
  const int64_t positions = size("max_positions");
  RotaryScaling s;
  const bool yarn = type == "yarn" && scaling.absent("attention_factor");
  s.kind = type == "linear"   ? RotaryScalingKind::linear
           : type == "llama3" ? RotaryScalingKind::llama3
           : yarn             ? RotaryScalingKind::yarn
                              : RotaryScalingKind::other;
  s.factor = scaling.real_or("factor", 1.0);
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
  if (s.kind == RotaryScalingKind::other) {
    const int64_t otherwise = type == "longrope" ? positions : s.original_positions;
    s.original_positions = scaling.size_or(original, beside ? config_.size(original) : otherwise);
  }
  // transformers/modeling_rope_utils.py, _compute_longrope_parameters
  if (type == "longrope" && s.original_positions < positions)
    s.factor = double(positions) / double(s.original_positions);
  return s;
}

void FamilyReader::tell_missing_base(double base) {
  config_.tell(fmt::format("rope_theta is missing: {}, the default of this type, is used",
                           format_count(int64_t(base))));
}

Rotary FamilyReader::rotary() {
  Rotary r{real("rotary_base"), real("rotary_fraction"), scaling()};
  const auto keys = family_.keys.find("rotary_base");
  if (keys != family_.keys.end() && !keys->second.empty() && !says("rotary_base")) tell_missing_base(r.base);
  return r;
}

Attention FamilyReader::attention() {
  Attention a;
  a.heads = size("heads");
  a.kv_heads = says("kv_heads") || count("kv_heads") > 0 ? size("kv_heads") : a.heads;
  a.qkv_bias = flag("qkv_bias");
  a.output_bias = flag("output_bias");
  a.sinks = flag("sinks");
  if (!family_.words.contains("query_key_norm")) {
    a.query_key_norm = QueryKeyNorm::none;
  } else if (!family_.keys.contains("query_key_norm_if") || flag("query_key_norm_if")) {
    a.query_key_norm = enum_value<QueryKeyNorm>(word("query_key_norm")).value_or(QueryKeyNorm::none);
  }
  if (family_.words.contains("gate") && (!family_.keys.contains("gate_if") || flag("gate_if")))
    a.output_gate = enum_value<OutputGate>(word("gate")).value_or(OutputGate::none);
  if (family_.keys.contains("kv_rank")) {
    a.latent = LatentAttention{count("query_rank"), size("kv_rank"), size("nope_dim"), size("rope_dim"),
                               size("v_dim")};
    a.head_dim = a.latent->nope_head_dim + a.latent->rope_head_dim;
    a.kv_heads = a.heads;  // the compressed keys and values are expanded for every head
  } else if (says("head_dim") || count("head_dim") > 0) {
    a.head_dim = size("head_dim");
  } else {
    const int64_t hidden = size("hidden");
    // The classes too refuse what does not divide.
    if (!config_.failed() && hidden % a.heads != 0)
      config_.add(family_.keys.at("hidden").front().c_str(),
                  fmt::format("width {} for {} heads", hidden, a.heads), "a multiple of the heads");
    a.head_dim = std::max<int64_t>(1, hidden / a.heads);
  }
  const int64_t values = count("value_dim");
  a.value_dim = values == a.head_dim ? 0 : values;
  a.keys_are_values = flag("keys_are_values");
  a.score_cap = cap("score_cap");
  const double scaled_as = real("scores_scaled_as");
  if (scaled_as > 0.0 && scaled_as != double(a.head_dim)) a.score_scale = 1.0 / std::sqrt(scaled_as);
  const double scores = real("score_factor");
  if (scores > 0.0 && scores != 1.0 / std::sqrt(double(a.head_dim))) a.score_scale = scores;
  if (!word("position").empty() && word("position") != "rotary") return a;
  a.rotary = rotary();
  if (const int64_t rotated = count("rotary_dims"); rotated > 0)
    a.rotary->fraction = double(rotated) / double(a.head_dim);
  return a;
}

Attention FamilyReader::window_attention(const Attention& full) {
  Attention a = full;
  const auto change = [&](const char* name, int64_t& value) {
    if (const int64_t own = count(name); own > 0) value = own;
  };
  change("window_heads", a.heads);
  change("window_kv_heads", a.kv_heads);
  change("window_head_dim", a.head_dim);
  if (const int64_t values = count("window_value_dim"); values > 0)
    a.value_dim = values == a.head_dim ? 0 : values;
  if (flag("window_sinks")) a.sinks = true;
  if (a.rotary && real("window_rotary_base") > 0.0)
    a.rotary = Rotary{real("window_rotary_base"), a.rotary->fraction, std::nullopt};
  if (a.rotary && real("window_rotary_fraction") > 0.0) a.rotary->fraction = real("window_rotary_fraction");
  if (const int64_t window = count("window"); window > 0) a.window = window;
  return a;
}

LinearMixer FamilyReader::linear() {
  LinearMixer l;
  l.kind = enum_value<LinearKind>(word("linear_kind")).value_or(LinearKind::gated_delta);
  l.heads = size("linear_heads");
  l.head_dim = size("linear_head_dim");
  l.key_heads = size("linear_key_heads");
  l.key_dim = size("linear_key_dim");
  l.convolution = count("convolution");
  l.chunk = size("linear_chunk");
  return l;
}

Mlp FamilyReader::mlp() {
  Mlp mlp;
  const int64_t times = count("ffn_of_hidden");
  mlp.ffn_hidden = times > 0 && !says("ffn") ? times * size("hidden") : size("ffn");
  mlp.gated = flag("gated");
  const std::string name = word("activation");
  const auto activation = activation_named(name);
  if (!activation) config_.refuse("hidden_act", "unknown activation \"" + name.substr(0, 40) + "\"");
  mlp.activation = activation.value_or(ActivationKind::silu);
  if (const double limit = real("activation_limit"); limit > 0.0) mlp.activation_limit = limit;
  mlp.bias = flag("mlp_bias");
  return mlp;
}

MixtureOfExperts FamilyReader::experts(const Mlp& mlp) {
  MixtureOfExperts moe;
  moe.experts = size("experts");
  moe.experts_per_token = size("experts_per_token");
  moe.expert = mlp;
  moe.expert.ffn_hidden = size("expert_ffn");
  const int64_t each = says("shared_each") ? count("shared_each") : moe.expert.ffn_hidden;
  moe.shared_ffn_hidden = says("shared_ffn") ? count("shared_ffn") : count("shared_count") * each;
  moe.shared_gate = moe.shared_ffn_hidden > 0 && flag("shared_gate");
  moe.router_bias = flag("router_bias");
  moe.bias_in_logits = moe.router_bias && flag("bias_in_logits");
  moe.scores = enum_value<RouterScores>(word("router_scores")).value_or(RouterScores::softmax);
  if (const auto named = family_.numbers.find("normalized");
      named != family_.numbers.end() || says("normalized"))
    moe.normalized = flag("normalized");
  if (const double scale = real("routed_scale"); scale > 0.0) moe.routed_scale = scale;
  if (const double loss = real("balance_loss"); says("balance_loss") || loss > 0.0) moe.balance_loss = loss;
  moe.expert_groups = std::max<int64_t>(1, count("groups"));
  moe.groups_per_token = std::max<int64_t>(1, count("groups_per_token"));
  moe.latent_width = count("latent_width");
  moe.zero_experts = count("zero_experts");
  return moe;
}

}  // namespace mpt::models
