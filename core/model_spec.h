// SPDX-License-Identifier: Apache-2.0
#pragma once

// ModelSpec: what a decoder transformer is, whatever machine it runs on and however it is split. A plain
// value that travels inside a plan. Knowledge about models (importing, counting, operators) is in models/.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/fields.h"

namespace mpt {

enum class NormKind { layer_norm, rms_norm };
/// pre: one norm before attention and one before the MLP. shared: one norm feeds both (parallel residual).
/// sandwich: before and after each of the two (Gemma 2).
enum class NormPlacement { pre, shared, sandwich };
enum class PositionKind { none, learned, rotary, alibi };
enum class AttentionKind { multi_head, latent };
enum class ActivationKind { gelu, gelu_tanh, silu, relu, squared_relu };
enum class QueryKeyNorm { none, per_head, full };

MPT_ENUM_NAMES(NormKind, {NormKind::layer_norm, "layer_norm"}, {NormKind::rms_norm, "rms_norm"});
MPT_ENUM_NAMES(NormPlacement, {NormPlacement::pre, "pre"}, {NormPlacement::shared, "shared"},
               {NormPlacement::sandwich, "sandwich"});
MPT_ENUM_NAMES(PositionKind, {PositionKind::none, "none"}, {PositionKind::learned, "learned"},
               {PositionKind::rotary, "rotary"}, {PositionKind::alibi, "alibi"});
MPT_ENUM_NAMES(AttentionKind, {AttentionKind::multi_head, "multi_head"}, {AttentionKind::latent, "latent"});
MPT_ENUM_NAMES(ActivationKind, {ActivationKind::gelu, "gelu"}, {ActivationKind::gelu_tanh, "gelu_tanh"},
               {ActivationKind::silu, "silu"}, {ActivationKind::relu, "relu"},
               {ActivationKind::squared_relu, "squared_relu"});
MPT_ENUM_NAMES(QueryKeyNorm, {QueryKeyNorm::none, "none"}, {QueryKeyNorm::per_head, "per_head"},
               {QueryKeyNorm::full, "full"});

/// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).
struct LatentAttention {
  int64_t query_rank = 0;  // 0: queries are projected directly
  int64_t key_value_rank = 0;
  int64_t nope_head_dim = 0;  // per head, without rotary
  int64_t rope_head_dim = 0;  // per head, with rotary; keys share one
  int64_t value_head_dim = 0;

  bool operator==(const LatentAttention&) const = default;

  template <class V>
  static void describe(V& v) {
    using T = LatentAttention;
    v.field("query_rank", &T::query_rank, "rank of the query compression; 0 if absent", between(0, 1 << 20));
    v.field("key_value_rank", &T::key_value_rank, "rank of the key-value compression", between(1, 1 << 20));
    v.field("nope_head_dim", &T::nope_head_dim, "head size without rotary part", between(0, 1 << 16));
    v.field("rope_head_dim", &T::rope_head_dim, "head size of the rotary part", between(0, 1 << 16));
    v.field("value_head_dim", &T::value_head_dim, "head size of values", between(1, 1 << 16));
  }
};

/// linear: all frequencies divided by the factor (arXiv:2306.15595). llama3: the low ones, smoothly
/// (Llama 3.1). yarn: by the turns that a frequency makes in the positions of pre-training
/// (arXiv:2309.00071). other: a scaling that only Hugging Face's code has.
enum class RotaryScalingKind { linear, llama3, yarn, other };
MPT_ENUM_NAMES(RotaryScalingKind, {RotaryScalingKind::linear, "linear"},
               {RotaryScalingKind::llama3, "llama3"}, {RotaryScalingKind::yarn, "yarn"},
               {RotaryScalingKind::other, "other"});

/// Frequencies of rotary positions for sequences longer than those of pre-training.
struct RotaryScaling {
  RotaryScalingKind kind = RotaryScalingKind::linear;
  double factor = 1.0;
  double low_frequency_factor = 1.0, high_frequency_factor = 4.0;  // llama3
  int64_t original_positions = 8192;                               // llama3, yarn
  // yarn: frequencies of more turns than beta_fast stay, those of fewer than beta_slow fall. Queries and keys
  // grow by 0.1 ln(factor) + 1, or by the ratio of two such terms with mscale and mscale_all_dim where both
  // are given; latent attention's scores grow by the square of the latter.
  double beta_fast = 32.0, beta_slow = 1.0;
  double mscale = 0.0, mscale_all_dim = 0.0;
  bool whole_dimensions = true;  // yarn: the bounds between them are rounded to whole dimensions

  bool operator==(const RotaryScaling&) const = default;

  template <class V>
  static void describe(V& v) {
    using T = RotaryScaling;
    v.field("kind", &T::kind, "rule of the scaling");
    v.field("factor", &T::factor, "by which frequencies fall", between(1e-3, 1e6));
    v.field("low_frequency_factor", &T::low_frequency_factor,
            "llama3: wavelengths above original / this fall", optional_field(between(1e-3, 1e6)));
    v.field("high_frequency_factor", &T::high_frequency_factor, "llama3: those below original / this stay",
            optional_field(between(1e-3, 1e6)));
    v.field("original_positions", &T::original_positions, "llama3, yarn: positions of pre-training",
            optional_field(between(1, 1 << 30)));
    v.field("beta_fast", &T::beta_fast, "yarn: turns above which frequencies stay",
            optional_field(between(1e-3, 1e6)));
    v.field("beta_slow", &T::beta_slow, "yarn: turns below which frequencies fall",
            optional_field(between(1e-3, 1e6)));
    v.field("mscale", &T::mscale, "yarn: growth of queries and keys; 0 if not given",
            optional_field(between(0, 100)));
    v.field("mscale_all_dim", &T::mscale_all_dim, "yarn: growth of scores; 0 if not given",
            optional_field(between(0, 100)));
    v.field("whole_dimensions", &T::whole_dimensions, "yarn: bounds are rounded to whole dimensions",
            optional_field());
  }
};

/// Mixture of experts in place of the dense MLP.
struct MixtureOfExperts {
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  int64_t expert_ffn_hidden = 0;
  int64_t shared_ffn_hidden = 0;  // total width of the always-active experts; 0 if none
  bool shared_gate = false;       // a [hidden, 1] gate on the shared experts (Qwen2-MoE)
  bool router_bias = false;       // a bias (or score-correction) per expert
  int64_t leading_dense_layers = 0;
  int64_t layer_interval = 1;   // every n-th layer after the leading ones has experts
  double balance_loss = 0.001;  // coefficient of the load-balancing loss, per layer
  // Experts lie in this many groups of neighbours, and those of a token in so many of them: it then crosses
  // to few nodes (arXiv:2412.19437, section 2.1.2).
  int64_t expert_groups = 1;
  int64_t groups_per_token = 1;

  bool operator==(const MixtureOfExperts&) const = default;

  template <class V>
  static void describe(V& v) {
    using T = MixtureOfExperts;
    v.field("experts", &T::experts, "routed experts per layer", between(1, 1 << 16));
    v.field("experts_per_token", &T::experts_per_token, "routed experts that see each token",
            between(1, 1 << 16));
    v.field("expert_ffn_hidden", &T::expert_ffn_hidden, "inner width of one routed expert",
            between(1, 1 << 24));
    v.field("shared_ffn_hidden", &T::shared_ffn_hidden, "inner width of the shared experts; 0 if none",
            between(0, 1 << 24));
    v.field("shared_gate", &T::shared_gate, "a gate multiplies the shared experts' output");
    v.field("router_bias", &T::router_bias, "the router has one bias per expert");
    v.field("leading_dense_layers", &T::leading_dense_layers, "first layers with a dense MLP",
            between(0, 100000));
    v.field("layer_interval", &T::layer_interval, "every n-th layer has experts", between(1, 100000));
    v.field("balance_loss", &T::balance_loss, "coefficient of the load-balancing loss",
            optional_field(between(0, 100)));
    v.field("expert_groups", &T::expert_groups, "groups of neighbouring experts",
            optional_field(between(1, kMostExpertGroups)));
    v.field("groups_per_token", &T::groups_per_token, "groups that the experts of a token lie in",
            optional_field(between(1, kMostExpertGroups)));
  }
  static constexpr double kMostExpertGroups = 64;
};

struct ModelSpec {
  std::string name;
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t vocab = 0;
  int64_t max_positions = 0;  // longest sequence; rows of the table when positions are learned
  NormKind norm = NormKind::layer_norm;
  NormPlacement norm_placement = NormPlacement::pre;
  bool norm_bias = true;  // layer norm only: a bias beside the scale
  double norm_epsilon = 1e-5;
  bool parallel_residual = false;  // attention and MLP read the same residual (GPT-NeoX, Falcon)
  bool embedding_norm = false;     // a norm after the embedding (BLOOM)
  PositionKind position = PositionKind::learned;
  double rotary_base = 10000.0;
  std::optional<RotaryScaling> rotary_scaling;
  double rotary_fraction = 1.0;  // share of each head that is rotated
  AttentionKind attention = AttentionKind::multi_head;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  bool qkv_bias = false;
  bool attention_output_bias = false;
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  bool attention_sinks = false;           // one learned logit per head (gpt-oss)
  std::optional<int64_t> sliding_window;  // tokens each query sees; absent: all earlier ones
  int64_t sliding_window_interval = 1;    // every n-th layer has the window (2: alternating)
  std::optional<LatentAttention> latent;  // required by AttentionKind::latent
  bool gated_mlp = false;
  ActivationKind activation = ActivationKind::gelu_tanh;
  std::optional<double> activation_limit;  // both halves of a gated one are cut off at it (gpt-oss)
  int64_t ffn_hidden = 0;  // inner width of the dense MLP (of the dense layers, if some have experts)
  bool mlp_bias = false;
  std::optional<MixtureOfExperts> moe;
  bool tied_embeddings = false;
  bool head_bias = false;
  int64_t next_token_layers =
      0;  // multi-token-prediction layers behind the last (DeepSeek-V3); not in `layers`

  bool operator==(const ModelSpec&) const = default;

  template <class V>
  static void describe(V& v);
};

/// Whether decoder layer `layer` (0-based) has experts instead of a dense MLP.
bool layer_has_experts(const ModelSpec& model, int64_t layer);

/// Checks what single-field ranges cannot: heads divide, latent present, experts at least top-k.
/// Throws UserError naming `file`.
void validate_model(const ModelSpec& model, const std::string& file);

/// Reads our own model format (models/zoo/*.json). Throws UserError.
ModelSpec load_model_spec(const std::filesystem::path& file);
std::string model_spec_to_text(const ModelSpec& model);

template <class V>
void ModelSpec::describe(V& v) {
  using T = ModelSpec;
  v.field("name", &T::name, "name of the model");
  v.field("layers", &T::layers, "decoder layers", between(1, 100000));
  v.field("hidden", &T::hidden, "width of the residual stream", between(1, 1 << 24));
  v.field("vocab", &T::vocab, "vocabulary size", between(1, 1 << 28));
  v.field("max_positions", &T::max_positions, "longest sequence", between(1, 1 << 30));
  v.field("norm", &T::norm, "kind of normalisation");
  v.field("norm_placement", &T::norm_placement, "where norms stand in a layer", optional_field());
  v.field("norm_bias", &T::norm_bias, "layer norm has a bias", optional_field());
  v.field("norm_epsilon", &T::norm_epsilon, "epsilon of the norms", optional_field(between(0, 1)));
  v.field("parallel_residual", &T::parallel_residual, "attention and MLP read the same input",
          optional_field());
  v.field("embedding_norm", &T::embedding_norm, "a norm after the embedding", optional_field());
  v.field("position", &T::position, "kind of positions");
  v.field("rotary_base", &T::rotary_base, "base of the rotary frequencies", optional_field(between(1, 1e12)));
  v.field("rotary_fraction", &T::rotary_fraction, "share of a head that is rotated",
          optional_field(between(0, 1)));
  v.field("rotary_scaling", &T::rotary_scaling, "scaling of the rotary frequencies", optional_field());
  v.field("attention", &T::attention, "kind of attention", optional_field());
  v.field("heads", &T::heads, "query heads", between(1, 1 << 16));
  v.field("kv_heads", &T::kv_heads, "key and value heads", between(1, 1 << 16));
  v.field("head_dim", &T::head_dim, "size of a head", between(1, 1 << 16));
  v.field("qkv_bias", &T::qkv_bias, "biases on queries, keys, values", optional_field());
  v.field("attention_output_bias", &T::attention_output_bias, "bias on the output projection",
          optional_field());
  v.field("query_key_norm", &T::query_key_norm, "norm on queries and keys", optional_field());
  v.field("attention_sinks", &T::attention_sinks, "one learned logit per head", optional_field());
  v.field("sliding_window", &T::sliding_window, "tokens each query sees",
          optional_field(between(1, 1 << 30)));
  v.field("sliding_window_interval", &T::sliding_window_interval, "every n-th layer has the window",
          optional_field(between(1, 100000)));
  v.field("latent", &T::latent, "sizes of latent attention", optional_field());
  v.field("gated_mlp", &T::gated_mlp, "the MLP is gated (SwiGLU, GeGLU)");
  v.field("activation", &T::activation, "activation of the MLP");
  v.field("activation_limit", &T::activation_limit, "size at which inputs of a gated activation are cut off",
          optional_field(between(1e-3, 1e6)));
  v.field("ffn_hidden", &T::ffn_hidden, "inner width of the dense MLP", between(1, 1 << 24));
  v.field("mlp_bias", &T::mlp_bias, "biases in the MLP", optional_field());
  v.field("moe", &T::moe, "mixture of experts", optional_field());
  v.field("tied_embeddings", &T::tied_embeddings, "the head shares the embedding's weight");
  v.field("head_bias", &T::head_bias, "bias on the output head", optional_field());
  v.field("next_token_layers", &T::next_token_layers, "multi-token-prediction layers",
          optional_field(between(0, 64)));
}

}  // namespace mpt
