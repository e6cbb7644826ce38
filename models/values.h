// SPDX-License-Identifier: Apache-2.0
#pragma once

// Value: the vocabulary of dialects for models. A dialect (config.json, Megatron-LM's flags, ...) has words
// for some of the values. docs/model_values.md is generated from this list.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "models/draft.h"

// Values that every model has, or may have, in any file format.
#define MPT_MODEL_VALUES(X)                                                             \
  X(layers, "so many decoder layers")                                                   \
  X(hidden, "a residual stream of this width")                                          \
  X(vocab, "a vocabulary of this size")                                                 \
  X(max_positions, "sequences of this length")                                          \
  X(norm, "this kind of norm")                                                          \
  X(placement, "norms at these places of a layer")                                      \
  X(norm_bias, "this choice of biases in layer norms")                                  \
  X(norm_epsilon, "this epsilon of norms")                                              \
  X(parallel_residual, "attention and MLP side by side")                                \
  X(embedding_norm, "a norm behind the embedding")                                      \
  X(position, "this kind of positions")                                                 \
  X(tied, "this choice of tied embeddings")                                             \
  X(head_bias, "a bias in the output head")                                             \
  X(embedding_scale, "a factor on embeddings")                                          \
  X(residual_scale, "a factor on what layers add to the residual")                      \
  X(logit_scale, "a factor on logits")                                                  \
  X(logit_cap, "soft caps on logits")                                                   \
  X(next_token_layers, "next-token layers")                                             \
  X(residual_streams, "several residual streams")                                       \
  X(residual_block, "attention over residuals of earlier layers")                       \
  X(layer_embedding, "embeddings of their own for layers")                              \
  X(layer_vocab, "another vocabulary for the embeddings of layers")                     \
  X(mixers, "these mixers in these layers")                                             \
  X(mlps, "experts or a dense MLP in these layers")                                     \
  X(unequal_layers, "layers that differ in their sizes or parts")                       \
  X(full_without_rotary, "layers without positions beside others with them")            \
  X(dense_beside_experts, "experts beside a dense MLP")                                 \
  X(borrowers, "layers that share keys and values")                                     \
  X(borrowers_are_wide, "wider MLPs in layers that share keys and values")              \
  X(heads, "so many attention heads")                                                   \
  X(kv_heads, "so many key and value heads")                                            \
  X(head_dim, "heads of this size")                                                     \
  X(value_dim, "values of another size than keys")                                      \
  X(qkv_bias, "this choice of biases on queries, keys and values")                      \
  X(output_bias, "this choice of a bias on the output of attention")                    \
  X(query_key_norm, "norms of queries and keys")                                        \
  X(sinks, "attention sinks")                                                           \
  X(gate, "gates on the output of attention")                                           \
  X(keys_are_values, "keys that serve as values")                                       \
  X(score_cap, "soft caps on scores")                                                   \
  X(score_scale, "a factor of its own on attention scores")                             \
  X(latent, "latent attention")                                                         \
  X(query_rank, "query compression of this rank")                                       \
  X(kv_rank, "key-value compression of this rank")                                      \
  X(nope_dim, "this size of the part of a head without positions")                      \
  X(rope_dim, "this size of the rotary part of a head")                                 \
  X(v_dim, "heads of values of this size")                                              \
  X(rotary_base, "this base of rotary positions")                                       \
  X(rotary_fraction, "rotary positions on a part of each head")                         \
  X(rotary_scaling, "this scaling of rotary positions")                                 \
  X(scaling_factor, "this factor of the scaling of rotary positions")                   \
  X(low_frequency_factor, "this low_freq_factor of Llama 3's scaling")                  \
  X(high_frequency_factor, "this high_freq_factor of Llama 3's scaling")                \
  X(original_positions, "this number of positions before scaling")                      \
  X(beta_fast, "this beta_fast of YaRN")                                                \
  X(beta_slow, "this beta_slow of YaRN")                                                \
  X(mscale, "this mscale of YaRN")                                                      \
  X(mscale_all_dim, "this mscale_all_dim of YaRN")                                      \
  X(whole_dimensions, "this choice of whole dimensions as bounds of YaRN")              \
  X(window, "sliding windows")                                                          \
  X(window_heads, "other heads in layers with windows")                                 \
  X(window_kv_heads, "other key and value heads in layers with windows")                \
  X(window_head_dim, "heads of another size in layers with windows")                    \
  X(window_value_dim, "values of another size in layers with windows")                  \
  X(window_sinks, "this choice of attention sinks in layers with windows")              \
  X(window_rotary_base, "another base of rotary positions in layers with windows")      \
  X(window_rotary_fraction, "another part of each head rotated in layers with windows") \
  X(window_keys_are_values, "keys that serve as values in layers with windows")         \
  X(window_unscaled, "rotary positions without scaling in layers with windows")         \
  X(chunk, "attention within chunks")                                                   \
  X(compressed, "attention over pooled tokens")                                         \
  X(index_heads, "so many heads in the index of sparse attention")                      \
  X(index_dim, "heads of this size in the index of sparse attention")                   \
  X(index_chosen, "sparse attention with so many chosen keys")                          \
  X(index_block, "an index that chooses blocks of keys")                                \
  X(linear_kind, "this kind of linear mixer")                                           \
  X(linear_heads, "so many heads of linear mixers")                                     \
  X(linear_head_dim, "heads of this size in linear mixers")                             \
  X(linear_key_heads, "so many key heads of linear mixers")                             \
  X(linear_key_dim, "keys of this size in linear mixers")                               \
  X(convolution, "short convolutions of this length")                                   \
  X(linear_chunk, "chunks of this length in linear mixers")                             \
  X(full_rank_gate, "a gate of full rank in linear mixers")                             \
  X(linear_step_rank, "this rank of a selective scan's step")                           \
  X(norms_steps, "norms on a selective scan's step")                                    \
  X(linear_output_norm, "this choice of a norm behind Mamba-2")                         \
  X(ffn, "dense MLPs of this inner width")                                              \
  X(gated, "this choice of gates in MLPs")                                              \
  X(activation, "this activation of MLPs")                                              \
  X(activation_limit, "limits on activations")                                          \
  X(mlp_bias, "this choice of biases in MLPs")                                          \
  X(experts, "so many experts")                                                         \
  X(experts_per_token, "so many experts for a token")                                   \
  X(expert_ffn, "experts of this inner width")                                          \
  X(shared_ffn, "shared experts")                                                       \
  X(shared_gate, "gates on shared experts")                                             \
  X(router_bias, "this choice of a bias in the router")                                 \
  X(bias_in_logits, "a router's bias that adds to its logits")                          \
  X(bias_rate, "this step of the router's bias")                                        \
  X(router_scores, "this kind of router scores")                                        \
  X(normalized, "this choice of router weights that add up to 1")                       \
  X(routed_scale, "this factor on what routed experts give")                            \
  X(balance_loss, "this balance loss of experts")                                       \
  X(groups, "so many groups of experts")                                                \
  X(groups_per_token, "a token's experts in so many groups")                            \
  X(latent_width, "experts in a latent space")                                          \
  X(latent_norm, "a norm behind experts in a latent space")                             \
  X(zero_experts, "experts that compute nothing")                                       \
  X(hashed, "experts that a table chooses")

// Values of config.json in another form than that of a model.
#define MPT_FILE_VALUES(X)                                                          \
  X(ffn_of_hidden, "width of a dense MLP as so many times the hidden size")         \
  X(rotary_dims, "dimensions of a head that are rotated, for rotary_fraction")      \
  X(embedding_factor, "embedding_scale, where 1 is none")                           \
  X(scaled_embedding, "embedding_scale is the root of the hidden size")             \
  X(residual_factor, "residual_scale, where 1 is none")                             \
  X(logit_factor, "logit_scale, where 1 is none")                                   \
  X(logit_divisor, "1 / logit_scale")                                               \
  X(scores_scaled_as, "score_scale as that of heads of so many dimensions")         \
  X(score_factor, "score_scale, where that of the head's size is none")             \
  X(query_key_norm_if, "whether query_key_norm holds")                              \
  X(gate_if, "whether gate holds")                                                  \
  X(shared_count, "shared experts, each as wide as a routed one or as shared_each") \
  X(shared_each, "width of one shared expert")                                      \
  X(linear_width, "heads x head size of linear mixers")                             \
  X(window_from, "first layer with a window")                                       \
  X(leading_dense, "first layer with experts")

namespace mpt::models {

enum class Value : uint8_t {
#define MPT_NAME(name, words) name,
  MPT_MODEL_VALUES(MPT_NAME) MPT_FILE_VALUES(MPT_NAME)
#undef MPT_NAME
};

/// Texts that complete "Megatron-LM lacks ..., which llama3-8b has" and "a model with ...".
const std::string& words_of(Value value);

/// Visits the values of a model in one of two directions: it sets them from words, or makes words of them.
/// Each call names a value, its place in the model, and its default without words.
class ValueVisitor {
 public:
  ValueVisitor() = default;
  ValueVisitor(const ValueVisitor&) = delete;
  ValueVisitor& operator=(const ValueVisitor&) = delete;
  virtual ~ValueVisitor() = default;

  /// Whether it sets places; if not, it reads them.
  virtual bool sets() const = 0;
  /// A number of at least `least`. Without a default a word must give it.
  virtual void count(Value value, int64_t& place, std::optional<int64_t> otherwise, int64_t least) = 0;
  void size(Value value, int64_t& place) { count(value, place, std::nullopt, 1); }
  void count(Value value, int64_t& place, int64_t otherwise = 0) { count(value, place, otherwise, 0); }
  void size_or(Value value, int64_t& place, int64_t otherwise) { count(value, place, otherwise, 1); }
  virtual void real(Value value, double& place, double otherwise) = 0;
  virtual void flag(Value value, bool& place, bool otherwise) = 0;
  /// Empty: there is no such cap, factor or limit.
  virtual void option(Value value, std::optional<double>& place) = 0;
  /// One of `known`.
  virtual void word(Value value, std::string& place, const std::vector<std::string>& known) = 0;
  /// Scaling of rotary positions of all layers that have them; visits its values one by one.
  virtual void scaling(std::optional<RotaryScaling>& place);
  /// A word for each layer.
  virtual void list(Value value, std::vector<std::string>& place) = 0;

  template <class E>
  void choice(Value value, E& place, E otherwise) {
    std::string name = enum_name(place);
    word(value, name, enum_names<E>());
    place = enum_value<E>(name).value_or(otherwise);
  }
};

/// Visits all values of `draft` in a fixed order.
void visit_values(ValueVisitor& visitor, ModelDraft& draft);
/// The parts that only some words for layers need, and that follow from these words.
void visit_other_mixers(ValueVisitor& visitor, ModelDraft& draft);
void visit_experts(ValueVisitor& visitor, ModelDraft& draft);

}  // namespace mpt::models
