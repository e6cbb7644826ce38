// SPDX-License-Identifier: Apache-2.0
#include "models/hf_weight_family.h"

#include <fmt/format.h>

#include "base/error.h"

namespace mpt::models {
namespace {

[[noreturn]] void refuse_weights(const ModelSpec& m, const std::string& found) {
  throw UserError(
      Problem{fmt::format("model \"{}\"", m.name), found,
              "a model like one of the families that docs/training.md lists under Hugging Face models",
              "train it from the start and keep its checkpoints"});
}

// Of all layers, as far as it is the same in all; and what some of them have.
struct Traits {
  Attention attention;
  std::optional<LinearMixer> linear;
  std::optional<Mlp> mlp;
  std::optional<MixtureOfExperts> moe;
  bool windows = false, all_windows = true, positions_differ = false, no_positions = false;
  bool dense_between = false;  // dense layers that are not all below those with experts
};

void add_attention(const ModelSpec& m, Attention a, Traits& t) {
  t.windows = t.windows || a.window;
  t.all_windows = t.all_windows && a.window;
  t.positions_differ = t.positions_differ || (a.rotary && !(a.rotary == t.attention.rotary));
  t.no_positions = t.no_positions || !a.rotary;
  a.window.reset();
  a.rotary = t.attention.rotary;
  if (!(a == t.attention)) refuse_weights(m, "layers with different attention");
}

Traits traits_of(const ModelSpec& m) {
  Traits t;
  t.attention = m.attention();
  t.attention.window.reset();
  const auto same = [&](auto& known, const auto& part, const char* what) {
    if (!known) known = part;
    if (!(known == part)) refuse_weights(m, fmt::format("layers with different {}", what));
  };
  for (const auto& [name, kind] : m.layers.kinds) {
    if (kind.attention.has_value() == kind.linear.has_value() || kind.convolution || !kind.has_mlp() ||
        (kind.mlp && kind.moe))
      refuse_weights(m, "layers that are not one mixer and one MLP");
    if (kind.attention) add_attention(m, *kind.attention, t);
    if (kind.linear) same(t.linear, kind.linear, "linear mixers");
    if (kind.mlp) same(t.mlp, kind.mlp, "MLPs");
    if (kind.moe) same(t.moe, kind.moe, "experts");
  }
  bool experts = false;
  for (int64_t l = 0; l < m.layers.count(); ++l) {
    const bool has = m.layers[l].moe.has_value();
    t.dense_between = t.dense_between || (experts && !has);
    experts = experts || has;
  }
  return t;
}

bool is_gpt2(const ModelSpec& m, const Traits& t) {
  const Attention& a = t.attention;
  return m.position == PositionKind::learned && t.mlp && !t.mlp->gated && a.qkv_bias && a.output_bias &&
         t.mlp->bias && m.norm_bias && a.kv_heads == a.heads && a.head_dim * a.heads == m.hidden && !t.moe &&
         !t.windows && m.norm_placement == NormPlacement::pre && !m.embedding_scale && !m.residual_scale &&
         !m.logit_scale;
}

// What a family of rms norms, rotary positions and gated MLPs may have beside these.
struct Allowed {
  WeightFamily family;
  bool windows = false, scale = false, caps = false, partial = false, no_positions = false;
  bool own_window_positions = false, dense_layers = false, dense_between = false, scaling = false,
       factors = false;
  int64_t next_tokens = 0;  // modules, at most
};

constexpr int64_t kMostModules = 64;

void check_allowed(const ModelSpec& m, const Traits& t, const Allowed& a) {
  const auto need = [&](bool wrong, const char* what) {
    if (wrong) refuse_weights(m, what);
  };
  need(t.windows && !a.windows, "windows beside other parts than those of known families");
  need(m.embedding_scale && !a.scale, "a factor on the embedding");
  need((t.attention.score_cap || m.logit_cap) && !a.caps, "soft caps");
  need((m.residual_scale || m.logit_scale) && !a.factors, "factors on residuals or logits");
  need(t.attention.score_scale && !a.caps && !a.factors, "a factor on scores");
  need(t.attention.rotation().fraction != 1.0 && !a.partial, "rotary positions on a part of each head");
  need(t.no_positions && !a.no_positions, "layers without positions");
  need(t.positions_differ && !a.own_window_positions, "layers with different rotary positions");
  need(m.next_token_layers > a.next_tokens,
       a.next_tokens > 0 ? "more next-token modules than the family has" : "next-token modules");
  const bool dense_misplaced = t.dense_between ? !a.dense_between : !a.dense_layers;
  need(t.moe && t.mlp && dense_misplaced, "dense layers between those with experts");
}

bool has_other_scaling(const Attention& a) {
  const auto& scaling = a.rotation().scaling;
  return scaling && scaling->kind == RotaryScalingKind::other;
}

Allowed latent_family(const Traits& t) {
  const bool sigmoid = t.moe && t.moe->scores == RouterScores::sigmoid;
  return {.family = sigmoid ? WeightFamily::deepseek_v3 : WeightFamily::deepseek_v2,
          .dense_layers = true,
          .next_tokens = sigmoid ? kMostModules : 0};
}

// Experts chosen by softmax, with shared ones that have a gate.
bool has_gated_experts(const MixtureOfExperts& e) {
  return e.shared_gate && e.shared_ffn_hidden > 0 && e.scores == RouterScores::softmax && !e.router_bias &&
         e.routed_scale == 1.0 && e.groups_per_token == e.expert_groups && !e.expert.bias;
}

Allowed linear_family(const ModelSpec& m, const Traits& t) {
  const Attention& a = t.attention;
  const LinearMixer& l = *t.linear;
  const bool like_qwen = l.kind == LinearKind::gated_delta && l.convolution > 0 && !a.latent && !a.sinks &&
                         a.output_gate == OutputGate::elementwise &&
                         a.query_key_norm == QueryKeyNorm::per_head && a.qkv_bias == a.output_bias &&
                         m.norm_placement == NormPlacement::pre && m.mlp().activation == ActivationKind::silu;
  if (!like_qwen || (t.moe && !has_gated_experts(*t.moe)))
    refuse_weights(m, "linear mixers beside other parts than Qwen3-Next's");
  return {.family = t.moe ? WeightFamily::qwen3_next : WeightFamily::qwen3_5_text,
          .partial = true,
          .dense_layers = true,
          .dense_between = true,
          .next_tokens = 1};
}

Allowed experts_family(const ModelSpec& m, const Traits& t) {
  const Attention& a = t.attention;
  const MixtureOfExperts& moe = *t.moe;
  if (a.sinks && moe.router_bias && moe.bias_in_logits && moe.expert.bias && moe.normalized)
    return {.family = WeightFamily::gpt_oss, .windows = true};
  if (moe.expert.bias || a.sinks || a.query_key_norm == QueryKeyNorm::full)
    refuse_weights(m, "experts arranged other than those of known families");
  if (moe.scores == RouterScores::sigmoid && moe.router_bias && moe.shared_ffn_hidden > 0)
    return {
        .family = WeightFamily::glm4_moe, .partial = true, .dense_layers = true, .next_tokens = kMostModules};
  const bool like_qwen2 = a.query_key_norm == QueryKeyNorm::none && !a.output_bias;
  if (has_gated_experts(moe) && like_qwen2)
    return {.family = WeightFamily::qwen2_moe, .dense_layers = true, .dense_between = true};
  if (moe.shared_gate) refuse_weights(m, "a gate on shared experts beside other parts than Qwen2-MoE's");
  if (moe.groups_per_token < moe.expert_groups) refuse_weights(m, "a router that is limited to groups");
  if (moe.shared_ffn_hidden > 0 || moe.router_bias || moe.scores != RouterScores::softmax ||
      moe.routed_scale != 1.0 || a.qkv_bias || a.output_bias)
    refuse_weights(m, "experts arranged other than those of known families");
  if (a.query_key_norm == QueryKeyNorm::per_head) return {.family = WeightFamily::qwen3_moe};
  if (!moe.normalized) refuse_weights(m, "weights of experts that do not sum up to 1");
  return {.family = WeightFamily::mixtral};
}

Allowed dense_family(const ModelSpec& m, const Traits& t) {
  const Attention& a = t.attention;
  const bool per_head = a.query_key_norm == QueryKeyNorm::per_head;
  const bool full = a.query_key_norm == QueryKeyNorm::full;
  if (a.sinks) refuse_weights(m, "sinks without experts");
  switch (m.norm_placement) {
    case NormPlacement::sandwich:
      if (!m.embedding_scale || full) refuse_weights(m, "norms before and behind other parts than Gemma's");
      return {.family = per_head ? WeightFamily::gemma3_text : WeightFamily::gemma2,
              .windows = true,
              .scale = true,
              .caps = true,
              .own_window_positions = per_head};
    case NormPlacement::post:
      if (!full) refuse_weights(m, "norms behind other parts than OLMo 2's");
      return {.family = t.windows ? WeightFamily::olmo3 : WeightFamily::olmo2, .windows = true};
    case NormPlacement::shared:
      refuse_weights(m, "one norm for attention and MLP");
    case NormPlacement::pre:
      break;
  }
  const bool factors = m.residual_scale || m.logit_scale || a.score_scale;
  if (!full && !per_head && !t.no_positions && !t.windows &&
      (factors || (m.embedding_scale && t.mlp->activation == ActivationKind::silu)))
    return {.family = WeightFamily::granite, .scale = true, .factors = true};
  if (m.embedding_scale) return {.family = WeightFamily::gemma, .scale = true};
  if (full) refuse_weights(m, "norms over all queries and keys");
  if (t.no_positions) return {.family = WeightFamily::smollm3, .no_positions = true};
  if (per_head) return {.family = WeightFamily::qwen3};
  if (t.all_windows && !a.qkv_bias) return {.family = WeightFamily::mistral, .windows = true};
  return {.family = a.qkv_bias && !a.output_bias ? WeightFamily::qwen2 : WeightFamily::llama};
}

}  // namespace

WeightFamily weight_family_of(const ModelSpec& m) {
  const Traits t = traits_of(m);
  if (m.parallel_residual || m.embedding_norm || m.head_bias || t.attention.value_dim > 0 ||
      t.attention.keys_are_values || t.attention.chunk || t.attention.index ||
      (t.attention.output_gate != OutputGate::none && !t.linear))
    refuse_weights(m, "an arrangement of layers that only few have");
  if (m.norm == NormKind::layer_norm) {
    if (!is_gpt2(m, t)) refuse_weights(m, "layer norms with other parts than GPT-2's");
    return WeightFamily::gpt2;
  }
  if (t.attention.latent && !t.moe) refuse_weights(m, "latent attention without experts");
  const bool plain = (t.mlp && (!t.mlp->gated || t.mlp->bias)) || (t.moe && !t.moe->expert.gated) ||
                     (t.moe && (t.moe->latent_width > 0 || t.moe->zero_experts > 0));
  if (m.position != PositionKind::rotary || plain)
    refuse_weights(m, "rms norms with other parts than Llama's");
  if (t.moe && !t.moe->shared_gate && t.moe->shared_ffn_hidden % t.moe->expert.ffn_hidden != 0)
    refuse_weights(m, "shared experts that are no whole number of others");
  if (t.moe && m.norm_placement != NormPlacement::pre)
    refuse_weights(m, "experts between norms of another placement");
  const Allowed allowed = t.linear             ? linear_family(m, t)
                          : t.attention.latent ? latent_family(t)
                          : t.moe              ? experts_family(m, t)
                                               : dense_family(m, t);
  if (has_other_scaling(t.attention))
    refuse_weights(m, "a scaling of rotary positions that is not known here");
  check_allowed(m, t, allowed);
  return allowed.family;
}

}  // namespace mpt::models
