// SPDX-License-Identifier: Apache-2.0
#pragma once

// LayerKind: what one decoder layer is: what mixes its tokens, and its MLP or experts. Layers of a model that
// differ in anything are of different kinds. A kind lacks what its layers lack.

#include <cstdint>
#include <optional>
#include <string>

#include "base/fields.h"

namespace mpt {

/// situ: Kimi K3's. xielu: of two learned numbers (arXiv:2411.13010).
enum class ActivationKind { gelu, gelu_tanh, silu, relu, squared_relu, xielu, situ };
enum class QueryKeyNorm { none, per_head, full };
/// A sigmoid or the like of the layer's input multiplies the output of attention: one number for each head,
/// or one for each element.
enum class OutputGate { none, per_head, elementwise };

/// linear: all frequencies divided by the factor (arXiv:2306.15595). llama3: the low ones, smoothly
/// (Llama 3.1). yarn: by the turns that a frequency makes in the positions of pre-training
/// (arXiv:2309.00071). other: a scaling that only Hugging Face's code has.
enum class RotaryScalingKind { linear, llama3, yarn, other };

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

  static void describe(auto& v) {
    using T = RotaryScaling;
    const FieldRule turns = optional_field(between(1e-3, 1e6)), growth = optional_field(between(0, 100));
    v.field("kind", &T::kind, "rule of the scaling");
    v.field("factor", &T::factor, "by which frequencies fall", between(1e-3, 1e6));
    v.field("low_frequency_factor", &T::low_frequency_factor,
            "llama3: wavelengths above original / this fall", turns);
    v.field("high_frequency_factor", &T::high_frequency_factor, "llama3: those below original / this stay",
            turns);
    v.field("original_positions", &T::original_positions, "llama3, yarn: positions of pre-training",
            optional_field(between(1, 1 << 30)));
    v.field("beta_fast", &T::beta_fast, "yarn: turns above which frequencies stay", turns);
    v.field("beta_slow", &T::beta_slow, "yarn: turns below which frequencies fall", turns);
    v.field("mscale", &T::mscale, "yarn: growth of queries and keys; 0 if not given", growth);
    v.field("mscale_all_dim", &T::mscale_all_dim, "yarn: growth of scores; 0 if not given", growth);
    v.field("whole_dimensions", &T::whole_dimensions, "yarn: bounds are rounded to whole dimensions",
            optional_field());
  }
};

/// Rotary positions of queries and keys (arXiv:2104.09864). A layer without them sees no positions, whatever
/// the other layers see.
struct Rotary {
  double base = 10000.0;
  double fraction = 1.0;  // share of each head that is rotated
  std::optional<RotaryScaling> scaling = {};

  bool operator==(const Rotary&) const = default;

  static void describe(auto& v) {
    using T = Rotary;
    v.field("base", &T::base, "base of the frequencies", optional_field(between(1, 1e12)));
    v.field("fraction", &T::fraction, "share of a head that is rotated", rare_field(between(0, 1)));
    v.field("scaling", &T::scaling, "scaling of the frequencies", optional_field());
  }
};

/// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).
struct LatentAttention {
  int64_t query_rank = 0;  // 0: queries are projected directly
  int64_t key_value_rank = 0;
  int64_t nope_head_dim = 0;  // per head, without rotary
  int64_t rope_head_dim = 0;  // per head, with rotary; keys share one
  int64_t value_head_dim = 0;

  bool operator==(const LatentAttention&) const = default;

  static void describe(auto& v) {
    using T = LatentAttention;
    v.field("query_rank", &T::query_rank, "rank of the query compression; 0 if absent", between(0, 1 << 20));
    v.field("key_value_rank", &T::key_value_rank, "rank of the key-value compression", between(1, 1 << 20));
    v.field("nope_head_dim", &T::nope_head_dim, "head size without rotary part", between(0, 1 << 16));
    v.field("rope_head_dim", &T::rope_head_dim, "head size of the rotary part", between(0, 1 << 16));
    v.field("value_head_dim", &T::value_head_dim, "head size of values", between(1, 1 << 16));
  }
};

/// Sparse attention: an index of small heads chooses the keys that each query sees (DeepSeek-V3.2,
/// arXiv:2512.02556, section 2.1; blocks of them: MiniMax M3).
struct AttentionIndex {
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t chosen = 0;   // keys, or blocks of them, that a query sees
  int64_t block = 1;    // keys of a block
  bool shared = false;  // it takes the choice of the nearest index below: no parameters

  bool operator==(const AttentionIndex&) const = default;

  static void describe(auto& v) {
    using T = AttentionIndex;
    v.field("heads", &T::heads, "heads of the index", between(1, 1 << 16));
    v.field("head_dim", &T::head_dim, "size of such a head", between(1, 1 << 16));
    v.field("chosen", &T::chosen, "keys that each query sees, or blocks of keys", between(1, 1 << 30));
    v.field("block", &T::block, "keys of a block that is chosen as a whole", rare_field(between(1, 1 << 20)));
    v.field("shared", &T::shared, "the choice of the layer with an index below serves again", rare_field());
  }
};

/// Compressed attention (DeepSeek-V4, arXiv:2606.19348, section 2.3). All heads share one key, which is also
/// the value. A query sees the tokens of a window, and entries that pool `ratio` tokens each. An index
/// chooses the entries; without one a query sees all earlier ones.
struct CompressedAttention {
  int64_t query_rank = 0;
  int64_t output_groups = 0;  // of heads, each projected to `output_rank` before all of them together
  int64_t output_rank = 0;
  int64_t ratio = 0;         // 0: the window alone
  bool overlapping = false;  // entries are made of twice as many tokens

  bool operator==(const CompressedAttention&) const = default;

  static void describe(auto& v) {
    using T = CompressedAttention;
    v.field("query_rank", &T::query_rank, "rank of the query compression", between(1, 1 << 20));
    v.field("output_groups", &T::output_groups, "groups of heads that are projected first",
            between(1, 1 << 16));
    v.field("output_rank", &T::output_rank, "width of each such projection", between(1, 1 << 20));
    v.field("ratio", &T::ratio, "tokens of an entry; 0: no entries, the window alone",
            optional_field(between(0, 1 << 20)));
    v.field("overlapping", &T::overlapping, "entries are made of twice as many tokens", rare_field());
  }
};

struct Attention {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;   // of queries and keys
  int64_t value_dim = 0;  // of values; 0: as of keys
  std::optional<LatentAttention> latent = {};
  std::optional<CompressedAttention> compressed = {};
  std::optional<Rotary> rotary = {};
  bool qkv_bias = false;
  bool output_bias = false;
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  bool sinks = false;                  // one learned logit per head (gpt-oss)
  std::optional<int64_t> window = {};  // tokens each query sees; absent: all earlier ones
  std::optional<int64_t> chunk = {};   // a query sees no other chunk than that it is in (Llama 4)
  std::optional<AttentionIndex> index = {};
  OutputGate output_gate = OutputGate::none;
  bool keys_are_values = false;  // no projection of values (Gemma 4)
  bool borrows_keys = false;     // keys and values of the nearest layer below of its kind that has its own
  std::optional<double> score_cap = {};    // scores are cap * tanh(score / cap) (Gemma 2)
  std::optional<double> score_scale = {};  // scores are multiplied by it, not by 1 / sqrt(head_dim) (Gemma 2)

  int64_t value_head_dim() const {
    return latent ? latent->value_head_dim : value_dim > 0 ? value_dim : head_dim;
  }
  /// Its rotary positions; the defaults where it has none.
  const Rotary& rotation() const {
    static const Rotary usual;
    return rotary ? *rotary : usual;
  }
  bool operator==(const Attention&) const = default;

  static void describe(auto& v) {
    using T = Attention;
    v.field("heads", &T::heads, "query heads", between(1, 1 << 16));
    v.field("kv_heads", &T::kv_heads, "key and value heads", between(1, 1 << 16));
    v.field("head_dim", &T::head_dim, "size of a head of queries and keys", between(1, 1 << 16));
    v.field("value_dim", &T::value_dim, "size of a head of values, where it is another; 0: the same",
            rare_field(between(0, 1 << 16)));
    v.field("latent", &T::latent, "sizes of latent attention", optional_field());
    v.field("compressed", &T::compressed, "attention over a window and pooled tokens", optional_field());
    v.field("rotary", &T::rotary, "rotary positions of queries and keys", optional_field());
    v.field("qkv_bias", &T::qkv_bias, "biases on queries, keys, values", rare_field());
    v.field("output_bias", &T::output_bias, "bias on the output projection", rare_field());
    v.field("query_key_norm", &T::query_key_norm, "norm on queries and keys", rare_field());
    v.field("sinks", &T::sinks, "one learned logit per head", rare_field());
    v.field("window", &T::window, "tokens each query sees", optional_field(between(1, 1 << 30)));
    v.field("chunk", &T::chunk, "tokens of a chunk, beyond which no query sees",
            optional_field(between(1, 1 << 30)));
    v.field("index", &T::index, "index that chooses the keys of sparse attention", optional_field());
    v.field("output_gate", &T::output_gate, "gate on the output of attention", rare_field());
    v.field("keys_are_values", &T::keys_are_values, "keys serve as values", rare_field());
    v.field("borrows_keys", &T::borrows_keys, "keys and values are those of a layer below", rare_field());
    v.field("score_cap", &T::score_cap, "size at which scores are capped softly",
            optional_field(between(1e-3, 1e6)));
    v.field("score_scale", &T::score_scale, "factor on scores; absent: 1 / sqrt(head_dim)",
            optional_field(between(1e-6, 1e6)));
  }
};

/// How much YaRN makes queries and keys grow (arXiv:2309.00071, section 3.4).
double yarn_growth(double factor, double scale);
/// The factor on scores; 0: 1 / sqrt(head_dim). Latent attention's scores grow by the square of what YaRN
/// gives queries and keys of others (transformers/models/deepseek_v3/modeling_deepseek_v3.py).
double score_scale_of(const Attention& attention);

/// Mixers whose work grows with the sequence, not its square, in their chunked training form. gated_delta:
/// Gated DeltaNet (arXiv:2412.06464). kimi_delta: KDA (arXiv:2510.26692). lightning: lightning attention
/// (arXiv:2401.04658). mamba2: SSD (arXiv:2405.21060). mamba1: the selective scan (arXiv:2312.00752), with
/// one channel per head.
enum class LinearKind { gated_delta, kimi_delta, lightning, mamba2, mamba1 };

struct LinearMixer {
  LinearKind kind = LinearKind::gated_delta;
  int64_t heads = 0;            // of values; mamba2: heads
  int64_t head_dim = 0;         // of values; mamba2: inner channels of a head
  int64_t key_heads = 0;        // mamba2: groups
  int64_t key_dim = 0;          // mamba2: states of a channel
  int64_t convolution = 0;      // length of the short convolution before it; 0: none
  int64_t chunk = 64;           // tokens that the training form works on at once
  bool full_rank_gate = false;  // kimi_delta: one product makes the output gate, not two of low rank
  int64_t step_rank = 0;        // mamba1: rank of what makes a channel's step
  bool norms_steps = false;     // mamba1: norms on the step's rank and both states (Jamba)
  bool output_norm = true;      // mamba2: a norm after the core

  bool operator==(const LinearMixer&) const = default;

  static void describe(auto& v) {
    using T = LinearMixer;
    v.field("kind", &T::kind, "kind of mixer");
    v.field("heads", &T::heads, "heads of values", between(1, 1 << 16));
    v.field("head_dim", &T::head_dim, "size of a head of values", between(1, 1 << 16));
    v.field("key_heads", &T::key_heads, "heads of queries and keys; mamba2: groups", between(1, 1 << 16));
    v.field("key_dim", &T::key_dim, "size of a head of keys; mamba2: size of a state", between(1, 1 << 16));
    v.field("convolution", &T::convolution, "length of the convolution; 0: none",
            optional_field(between(0, 64)));
    v.field("chunk", &T::chunk, "tokens of a chunk of the training form",
            optional_field(between(1, 1 << 16)));
    v.field("full_rank_gate", &T::full_rank_gate, "kimi_delta: one product makes the output gate",
            rare_field());
    v.field("step_rank", &T::step_rank, "mamba1: rank of what makes a channel's step",
            rare_field(between(0, 1 << 20)));
    v.field("norms_steps", &T::norms_steps, "mamba1: norms on the step and both states", rare_field());
    v.field("output_norm", &T::output_norm, "mamba2: a norm behind the core", rare_field());
  }
};

/// A gated short convolution of every channel (LFM2, arXiv:2511.23404).
struct ShortConvolution {
  int64_t length = 3;

  bool operator==(const ShortConvolution&) const = default;

  static void describe(auto& v) {
    v.field("length", &ShortConvolution::length, "tokens that it spans", between(1, 64));
  }
};

/// What the router makes of its logits: numbers that sum up to 1, or each expert's own number
/// (arXiv:2412.19437, section 2.1.2).
enum class RouterScores { softmax, sigmoid };

struct Mlp {
  int64_t ffn_hidden = 0;  // inner width
  bool gated = false;
  ActivationKind activation = ActivationKind::gelu_tanh;
  std::optional<double> activation_limit = {};  // both halves of a gated one are cut off at it (gpt-oss)
  bool bias = false;

  bool operator==(const Mlp&) const = default;

  static void describe(auto& v) {
    using T = Mlp;
    v.field("ffn_hidden", &T::ffn_hidden, "inner width", between(1, 1 << 24));
    v.field("gated", &T::gated, "it is gated (SwiGLU, GeGLU)");
    v.field("activation", &T::activation, "activation");
    v.field("activation_limit", &T::activation_limit,
            "size at which inputs of a gated activation are cut off", optional_field(between(1e-3, 1e6)));
    v.field("bias", &T::bias, "biases", rare_field());
  }
};

/// Mixture of experts, in place of a dense MLP or beside one.
struct MixtureOfExperts {
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  Mlp expert;
  int64_t shared_ffn_hidden = 0;  // total width of the always-active experts, which have no bias; 0 if none
  bool shared_gate = false;       // a [hidden, 1] gate on the shared experts (Qwen2-MoE)
  bool router_bias = false;       // a bias (or score-correction) per expert
  // The bias adds to the logits (gpt-oss). Otherwise it moves the choice of experts, not their weights, and
  // is no matter of gradients: each step moves it by bias_rate towards an even load (arXiv:2408.15664).
  bool bias_in_logits = false;
  double bias_rate = 0.001;
  RouterScores scores = RouterScores::softmax;
  bool normalized = true;       // weights of a token's experts sum up to 1
  double routed_scale = 1.0;    // factor on what routed experts give
  double balance_loss = 0.001;  // coefficient of the load-balancing loss, per layer
  // Experts lie in this many groups of neighbours, and those of a token in so many of them: it then crosses
  // to few nodes (arXiv:2412.19437, section 2.1.2).
  int64_t expert_groups = 1;
  int64_t groups_per_token = 1;
  int64_t latent_width = 0;  // routed experts work in a space of this width; 0: in the residual stream's
  bool latent_norm = false;  // after the experts, in that space
  int64_t zero_experts = 0;  // further ones that the router may choose and that compute nothing
  bool hashed = false;       // a table says which experts a token goes to (DeepSeek-V4)

  bool operator==(const MixtureOfExperts&) const = default;

  static void describe(auto& v) {
    using T = MixtureOfExperts;
    v.field("experts", &T::experts, "routed experts per layer", between(1, 1 << 16));
    v.field("experts_per_token", &T::experts_per_token, "routed experts that see each token",
            between(1, 1 << 16));
    v.field("expert", &T::expert, "one routed expert");
    v.field("shared_ffn_hidden", &T::shared_ffn_hidden, "inner width of the shared experts; 0 if none",
            rare_field(between(0, 1 << 24)));
    v.field("shared_gate", &T::shared_gate, "a gate multiplies the shared experts' output", rare_field());
    v.field("router_bias", &T::router_bias, "the router has one bias per expert", rare_field());
    v.field("bias_in_logits", &T::bias_in_logits,
            "that bias adds to the logits; else it moves the choice alone", rare_field());
    v.field("bias_rate", &T::bias_rate, "step of a bias that moves the choice", rare_field(between(0, 1)));
    v.field("scores", &T::scores, "what the router makes of its logits", rare_field());
    v.field("normalized", &T::normalized, "weights of a token's experts sum up to 1", rare_field());
    v.field("routed_scale", &T::routed_scale, "factor on what routed experts give",
            rare_field(between(1e-6, 1e6)));
    v.field("balance_loss", &T::balance_loss, "coefficient of the load-balancing loss",
            optional_field(between(0, 100)));
    v.field("expert_groups", &T::expert_groups, "groups of neighbouring experts",
            rare_field(between(1, kMostExpertGroups)));
    v.field("groups_per_token", &T::groups_per_token, "groups that the experts of a token lie in",
            rare_field(between(1, kMostExpertGroups)));
    v.field("latent_width", &T::latent_width, "width in which routed experts work; 0: the model's",
            rare_field(between(0, 1 << 24)));
    v.field("latent_norm", &T::latent_norm, "a norm behind experts of another width", rare_field());
    v.field("hashed", &T::hashed, "a table by token chooses the experts", rare_field());
    v.field("zero_experts", &T::zero_experts, "further experts that compute nothing",
            rare_field(between(0, 1 << 16)));
  }
  static constexpr double kMostExpertGroups = 64;
};

/// Each part that is there has its norm and its addition to the residual stream. Mixers of one layer work
/// side by side on the same input, and so do a dense MLP and experts.
struct LayerKind {
  std::optional<Attention> attention = {};
  std::optional<LinearMixer> linear = {};
  std::optional<ShortConvolution> convolution = {};
  std::optional<Mlp> mlp = {};
  std::optional<MixtureOfExperts> moe = {};

  bool has_mixer() const { return attention || linear || convolution; }
  bool has_mlp() const { return mlp || moe; }
  bool operator==(const LayerKind&) const = default;

  static void describe(auto& v) {
    using T = LayerKind;
    v.field("attention", &T::attention, "attention", optional_field());
    v.field("linear", &T::linear, "a mixer of linear cost", optional_field());
    v.field("convolution", &T::convolution, "a gated short convolution", optional_field());
    v.field("mlp", &T::mlp, "dense MLP", optional_field());
    v.field("moe", &T::moe, "mixture of experts", optional_field());
  }
};

/// A name made of the kind's parts: "attention_mlp", "window_experts", "mamba2".
std::string kind_name(const LayerKind& kind);

}  // namespace mpt
