// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/json.h"
#include "frameworks/supports/supports.h"

namespace mpt::frameworks {
namespace {

// Megatron-LM has the two scales with latent attention alone, and there only bounds of whole dimensions.
bool megatron_has_yarn(const ModelSpec& m) {
  const RotaryScaling& s = *m.attention().rotation().scaling;
  return m.attention().latent ? s.whole_dimensions : s.mscale == 0.0 && s.mscale_all_dim == 0.0;
}

bool has_rare_rotary_scaling(const ModelSpec& m) {
  if (m.position != PositionKind::rotary) return false;
  const bool whole_base = m.attention().rotation().base == std::floor(m.attention().rotation().base);
  if (!m.attention().rotation().scaling) return !whole_base;
  const RotaryScaling& s = *m.attention().rotation().scaling;
  const RotaryScaling llama3{RotaryScalingKind::llama3, 8.0, 1.0, 4.0, 8192};
  switch (s.kind) {
    case RotaryScalingKind::other:
      return true;
    case RotaryScalingKind::yarn:
      return !whole_base || !megatron_has_yarn(m);
    case RotaryScalingKind::llama3:
      return !whole_base || m.attention().latent || s != llama3;
    case RotaryScalingKind::linear:
      return !whole_base || m.attention().latent || s.factor != std::floor(s.factor);
  }
  return true;
}

bool has_other_biases(const ModelSpec& m) {
  const bool none_or_all =
      m.mlp().bias == m.attention().output_bias && (m.attention().qkv_bias || !m.mlp().bias);
  const bool gelu_without =
      !m.mlp().gated && m.mlp().activation == ActivationKind::gelu_tanh && !m.mlp().bias;
  return !none_or_all || gelu_without || (m.norm == NormKind::layer_norm && !m.norm_bias);
}

// But for windows and experts.
bool layers_differ(const ModelSpec& m) {
  std::optional<Attention> attention;
  std::optional<Mlp> mlp;
  std::optional<MixtureOfExperts> moe;
  const auto differs = [](auto& known, const auto& part) {
    if (!part) return false;
    if (!known) known = part;
    return !(known == part);
  };
  return m.layers.any([&](LayerKind kind) {
    if (!kind.attention || !kind.has_mlp()) return true;
    kind.attention->window.reset();
    return differs(attention, kind.attention) || differs(mlp, kind.mlp) || differs(moe, kind.moe);
  });
}

bool any_attention(const ModelSpec& m, bool (*has)(const Attention&)) {
  return m.layers.any([&](const LayerKind& k) { return k.attention && has(*k.attention); });
}

bool any_experts(const ModelSpec& m, bool (*has)(const MixtureOfExperts&)) {
  return m.layers.any([&](const LayerKind& k) { return k.moe && has(*k.moe); });
}

bool softmax(const MixtureOfExperts& e) { return e.scores == RouterScores::softmax; }

// Routers other than softmax over the chosen experts.
std::vector<ModelFeature> router_features_of(const ModelSpec& m) {
  using F = ModelFeature;
  using E = MixtureOfExperts;
  const std::pair<bool (*)(const E&), F> table[] = {
      {[](const E& e) { return !softmax(e); }, F::sigmoid_routers},
      {[](const E& e) { return softmax(e) && !e.normalized; }, F::plain_router_weights},
      {[](const E& e) { return !softmax(e) && !e.normalized && e.experts_per_token > 1; },
       F::plain_sigmoid_weights},
      {[](const E& e) { return e.routed_scale != 1.0; }, F::routed_scale},
      {[](const E& e) { return softmax(e) && e.router_bias && !e.bias_in_logits; }, F::biased_softmax},
      {[](const E& e) { return e.router_bias && e.bias_in_logits && !e.expert.bias; }, F::logit_bias_alone},
      {[](const E& e) { return softmax(e) && e.groups_per_token < e.expert_groups; }, F::softmax_groups}};
  std::vector<F> features;
  for (const auto& [present, feature] : table) {
    if (any_experts(m, present)) features.push_back(feature);
  }
  return features;
}

bool is_rare(ActivationKind kind) { return kind == ActivationKind::xielu || kind == ActivationKind::situ; }

std::vector<ModelFeature> yarn_features_of(const ModelSpec& m) {
  const auto& scaling = m.attention().rotation().scaling;
  if (!scaling || scaling->kind != RotaryScalingKind::yarn) return {};
  if (!m.attention().latent) return {ModelFeature::yarn, ModelFeature::plain_yarn};
  std::vector<ModelFeature> features{ModelFeature::yarn};
  const bool equal = scaling->mscale > 0.0 && scaling->mscale == scaling->mscale_all_dim;
  if (!equal) features.push_back(ModelFeature::yarn_scales);
  if (scaling->beta_fast != 32.0 || scaling->beta_slow != 1.0 || scaling->original_positions != 4096)
    features.push_back(ModelFeature::yarn_turns);
  return features;
}

bool has_other_linear_mixer(const LayerKind& k) {
  const bool other = k.linear && (k.linear->kind != LinearKind::gated_delta || k.attention);
  return other || k.convolution;
}

// What came after the models that all frameworks know.
std::vector<ModelFeature> recent_features_of(const ModelSpec& m) {
  const std::pair<bool, ModelFeature> table[] = {
      {m.layers.any([](const LayerKind& k) { return k.linear || k.convolution; }),
       ModelFeature::linear_mixers},
      {m.layers.any(has_other_linear_mixer), ModelFeature::other_linear_mixers},
      {any_attention(m, [](const Attention& a) { return a.index.has_value(); }),
       ModelFeature::sparse_attention},
      {any_attention(m, [](const Attention& a) { return a.chunk.has_value(); }),
       ModelFeature::chunked_attention},
      {any_attention(m, [](const Attention& a) { return a.output_gate != OutputGate::none; }),
       ModelFeature::output_gates},
      {any_attention(m, [](const Attention& a) { return a.latent && a.output_gate != OutputGate::none; }),
       ModelFeature::latent_output_gates},
      {any_attention(m, [](const Attention& a) { return a.value_dim > 0 || a.keys_are_values; }),
       ModelFeature::other_value_sizes},
      {m.logit_cap || any_attention(m, [](const Attention& a) { return a.score_cap.has_value(); }),
       ModelFeature::soft_caps},
      {any_experts(m, [](const MixtureOfExperts& e) { return e.latent_width > 0; }),
       ModelFeature::latent_experts},
      {any_experts(m, [](const MixtureOfExperts& e) { return e.zero_experts > 0; }),
       ModelFeature::zero_experts},
      {m.layers.any([](const LayerKind& k) { return k.mlp && k.moe; }), ModelFeature::experts_beside_mlp},
      {is_rare(m.mlp().activation), ModelFeature::rare_activations},
      {any_experts(m, [](const MixtureOfExperts& e) { return e.shared_gate; }),
       ModelFeature::shared_expert_gates},
      {m.mlp().activation_limit && !m.mlp().bias, ModelFeature::other_activation_limit},
      {any_attention(m, [](const Attention& a) { return a.compressed.has_value(); }),
       ModelFeature::compressed_attention},
      {m.residual_streams > 1 || m.residual_block > 0, ModelFeature::residual_mixtures},
      {m.layer_embedding > 0, ModelFeature::layer_embeddings},
      {any_attention(m, [](const Attention& a) { return a.borrows_keys; }), ModelFeature::borrowed_keys},
      {any_experts(m, [](const MixtureOfExperts& e) { return e.latent_norm; }), ModelFeature::latent_norms},
      {any_experts(m, [](const MixtureOfExperts& e) { return e.hashed; }), ModelFeature::hashed_experts},
      {m.embedding_scale.has_value(), ModelFeature::embedding_scale},
      {any_attention(m, [](const Attention& a) { return a.score_scale.has_value(); }),
       ModelFeature::score_scale},
      {m.residual_scale || m.logit_scale, ModelFeature::residual_factors},
      {layers_differ(m), ModelFeature::layers_that_differ}};
  std::vector<ModelFeature> features = router_features_of(m);
  for (const auto& [present, feature] : table) {
    if (present) features.push_back(feature);
  }
  return features;
}

// Numbers as 0, 1 or 2.
void forget_sizes(Json& json) {
  if (json.is_number()) {
    const double number = json.get<double>();
    json = number == 0.0 ? 0 : number == 1.0 ? 1 : 2;
  } else if (json.is_structured()) {
    for (Json& part : json) forget_sizes(part);
  }
}

}  // namespace

std::vector<ModelFeature> features_of(const ModelSpec& m) {
  const bool gelu =
      m.mlp().activation == ActivationKind::gelu || m.mlp().activation == ActivationKind::gelu_tanh;
  const std::pair<bool, ModelFeature> table[] = {
      {m.moe() != nullptr, ModelFeature::experts},
      {m.moe() != nullptr && m.moe()->shared_ffn_hidden > 0, ModelFeature::shared_experts},
      {m.moe() != nullptr && m.moe()->expert.bias, ModelFeature::expert_biases},
      {m.attention().latent.has_value(), ModelFeature::latent_attention},
      {m.position == PositionKind::alibi, ModelFeature::alibi},
      {m.norm_placement != NormPlacement::pre, ModelFeature::other_norm_placement},
      {m.parallel_residual, ModelFeature::parallel_residual},
      {m.embedding_norm, ModelFeature::embedding_norm},
      {m.attention().query_key_norm == QueryKeyNorm::full, ModelFeature::full_query_key_norm},
      {m.attention().sinks, ModelFeature::attention_sinks},
      {m.mlp().activation_limit.has_value(), ModelFeature::activation_limit},
      {m.has_windows(), ModelFeature::sliding_window},
      {m.head_bias, ModelFeature::head_bias},
      {m.next_token_layers > 0, ModelFeature::next_token_layers},
      {m.attention().rotation().scaling && m.attention().rotation().scaling->kind == RotaryScalingKind::other,
       ModelFeature::other_rotary_scaling},
      {has_rare_rotary_scaling(m), ModelFeature::rare_rotary_scaling},
      {m.mlp().activation == ActivationKind::relu, ModelFeature::relu},
      {m.mlp().activation == ActivationKind::squared_relu, ModelFeature::squared_relu},
      {m.mlp().gated && gelu, ModelFeature::gated_gelu},
      {has_other_biases(m), ModelFeature::other_biases},
      {m.attention().rotation().scaling &&
           m.attention().rotation().scaling->kind == RotaryScalingKind::linear,
       ModelFeature::linear_rotary_scaling},
      {m.position == PositionKind::rotary && m.attention().rotation().fraction != 1.0,
       ModelFeature::partial_rotary},
      {m.position == PositionKind::learned, ModelFeature::learned_positions},
      {m.norm == NormKind::layer_norm, ModelFeature::layer_norm},
      {m.attention().qkv_bias || m.attention().output_bias || m.mlp().bias, ModelFeature::linear_biases},
      {!m.mlp().gated || m.mlp().activation != ActivationKind::silu, ModelFeature::plain_mlp}};
  std::vector<ModelFeature> features = recent_features_of(m);
  for (const ModelFeature feature : yarn_features_of(m)) features.push_back(feature);
  for (const auto& [present, feature] : table) {
    if (present) features.push_back(feature);
  }
  return features;
}

std::string architecture_of(const ModelSpec& model) {
  Json json = to_json(model);
  std::set<std::string> kinds;
  for (Json kind : json["layers"]["kinds"]) {
    forget_sizes(kind);
    kinds.insert(kind.dump());
  }
  for (const char* key :
       {"name", "type", "hub_id", "layers", "max_positions", "next_token_layers", "tied_embeddings"})
    json.erase(key);
  forget_sizes(json);
  for (const std::string& kind : kinds) json["layers"].push_back(kind);
  return json.dump();
}

std::string words_of(ModelFeature feature) {
  using F = ModelFeature;
  static const std::map<F, const char*> table{
      {F::experts, "mixture of experts"},
      {F::expert_biases, "biases in experts"},
      {F::alibi, "ALiBi positions"},
      {F::other_norm_placement, "sandwich and shared norms"},
      {F::embedding_norm, "a norm behind the embedding"},
      {F::full_query_key_norm, "norms over whole queries and keys"},
      {F::activation_limit, "a limit on activations"},
      {F::sliding_window, "sliding windows"},
      {F::head_bias, "a bias in the output head"},
      {F::next_token_layers, "multi-token prediction"},
      {F::other_rotary_scaling, "the scaling of rotary positions"},
      {F::yarn, "YaRN"},
      {F::rare_rotary_scaling, "the scaling of rotary positions"},
      {F::relu, "ReLU"},
      {F::squared_relu, "squared ReLU"},
      {F::gated_gelu, "gated GELU"},
      {F::other_biases, "biases in some linear layers and not in others"},
      {F::linear_rotary_scaling, "linear scaling of rotary positions"},
      {F::partial_rotary, "rotary positions on a part of each head"},
      {F::linear_biases, "biases in linear layers"},
      {F::plain_mlp, "MLPs other than SwiGLU"},
      {F::layers_that_differ, "layers that differ in their sizes or parts"},
      {F::other_value_sizes, "values of another size than keys"},
      {F::other_linear_mixers, "linear mixers other than Gated DeltaNet, or one beside attention"},
      {F::output_gates, "gates on the output of attention"},
      {F::latent_output_gates, "gates on the output of latent attention"},
      {F::soft_caps, "soft caps on scores or logits"},
      {F::latent_experts, "experts in a latent space"},
      {F::zero_experts, "experts that compute nothing"},
      {F::experts_beside_mlp, "experts beside a dense MLP"},
      {F::rare_activations, "this activation"},
      {F::shared_expert_gates, "gates on shared experts"},
      {F::other_activation_limit, "limits on activations other than gpt-oss's"},
      {F::compressed_attention, "attention over pooled tokens"},
      {F::residual_mixtures, "mixtures of residual streams"},
      {F::layer_embeddings, "embeddings of their own for layers"},
      {F::borrowed_keys, "layers that share keys and values"},
      {F::latent_norms, "a norm behind experts in a latent space"},
      {F::hashed_experts, "experts that a table chooses"},
      {F::sigmoid_routers, "routers with sigmoid scores"},
      {F::plain_router_weights, "routers whose weights for a token do not add up to 1"},
      {F::plain_sigmoid_weights, "sigmoid routers whose weights for a token do not add up to 1"},
      {F::routed_scale, "a factor on what routed experts give"},
      {F::biased_softmax, "a bias that moves the choice of a router with softmax"},
      {F::logit_bias_alone, "a bias in the router alone"},
      {F::softmax_groups, "groups of experts that softmax scores choose"},
      {F::embedding_scale, "a factor on embeddings"},
      {F::score_scale, "attention scores with a factor of their own"},
      {F::plain_yarn, "YaRN without latent attention"},
      {F::yarn_scales, "YaRN whose two scales differ"},
      {F::yarn_turns, "YaRN with bounds or positions other than DeepSeek-V3's"},
      {F::residual_factors, "factors on residuals or logits"}};
  const auto found = table.find(feature);
  if (found != table.end()) return found->second;
  std::string name = enum_name(feature);
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

}  // namespace mpt::frameworks
