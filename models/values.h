// SPDX-License-Identifier: Apache-2.0
#pragma once

// Value: the vocabulary of dialects for models. A dialect (config.json, Megatron-LM's flags, ...) has words
// for some of the values. docs/model_values.md is made of this list.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "models/draft.h"

// Values that every model has, or may have, whatever file it comes from.
#define MPT_MODEL_VALUES(X)                                                             \
  X(layers, "decoder layers")                                                           \
  X(hidden, "width of the residual stream")                                             \
  X(vocab, "vocabulary size")                                                           \
  X(max_positions, "longest sequence")                                                  \
  X(norm, "kind of norm")                                                               \
  X(placement, "where norms stand in a layer")                                          \
  X(norm_bias, "biases in layer norms")                                                 \
  X(norm_epsilon, "epsilon of the norms")                                               \
  X(parallel_residual, "attention and MLP side by side")                                \
  X(embedding_norm, "a norm behind the embedding")                                      \
  X(position, "kind of positions")                                                      \
  X(tied, "a head that shares the embedding's weight")                                  \
  X(head_bias, "a bias in the output head")                                             \
  X(embedding_scale, "a factor on embeddings")                                          \
  X(residual_scale, "a factor on what layers add to the residual")                      \
  X(logit_scale, "a factor on logits")                                                  \
  X(logit_cap, "soft caps on logits")                                                   \
  X(next_token_layers, "next-token layers")                                             \
  X(residual_streams, "several residual streams")                                       \
  X(residual_block, "attention over residuals of earlier layers")                       \
  X(layer_embedding, "embeddings of their own for layers")                              \
  X(layer_vocab, "rows of the layers' embeddings")                                      \
  X(mixers, "which layers have which mixer")                                            \
  X(mlps, "which layers have experts")                                                  \
  X(unequal_layers, "layers that differ in their sizes or parts")                       \
  X(full_without_rotary, "layers without positions beside others with them")            \
  X(dense_beside_experts, "experts beside a dense MLP")                                 \
  X(borrowers, "layers that share keys and values")                                     \
  X(borrowers_are_wide, "wider MLPs in layers that share keys and values")              \
  X(heads, "attention heads")                                                           \
  X(kv_heads, "key and value heads")                                                    \
  X(head_dim, "size of a head")                                                         \
  X(value_dim, "values of another size than keys")                                      \
  X(qkv_bias, "biases on queries, keys and values")                                     \
  X(output_bias, "a bias on the output of attention")                                   \
  X(query_key_norm, "norms of queries and keys")                                        \
  X(sinks, "attention sinks")                                                           \
  X(gate, "gates on the output of attention")                                           \
  X(keys_are_values, "keys that serve as values")                                       \
  X(score_cap, "soft caps on scores")                                                   \
  X(score_scale, "attention scores with a factor of their own")                         \
  X(latent, "latent attention")                                                         \
  X(query_rank, "rank of the query compression")                                        \
  X(kv_rank, "rank of the key-value compression")                                       \
  X(nope_dim, "size of a head without rotary positions")                                \
  X(rope_dim, "size of the rotary part of a head")                                      \
  X(v_dim, "size of a head of values in latent attention")                              \
  X(rotary_base, "base of rotary positions")                                            \
  X(rotary_fraction, "rotary positions on a part of each head")                         \
  X(rotary_scaling, "scaling of rotary positions")                                      \
  X(scaling_factor, "factor of the scaling of rotary positions")                        \
  X(low_frequency_factor, "lower bound of Llama 3's scaling")                           \
  X(high_frequency_factor, "upper bound of Llama 3's scaling")                          \
  X(original_positions, "positions before scaling")                                     \
  X(beta_fast, "upper bound of YaRN")                                                   \
  X(beta_slow, "lower bound of YaRN")                                                   \
  X(mscale, "YaRN's scale of queries and keys")                                         \
  X(mscale_all_dim, "YaRN's scale of scores")                                           \
  X(whole_dimensions, "YaRN's bounds as whole dimensions")                              \
  X(window, "sliding windows")                                                          \
  X(window_heads, "other heads in layers with windows")                                 \
  X(window_kv_heads, "other key and value heads in layers with windows")                \
  X(window_head_dim, "heads of another size in layers with windows")                    \
  X(window_value_dim, "values of another size in layers with windows")                  \
  X(window_sinks, "attention sinks in layers with windows")                             \
  X(window_rotary_base, "another base of rotary positions in layers with windows")      \
  X(window_rotary_fraction, "another part of each head rotated in layers with windows") \
  X(window_keys_are_values, "keys that serve as values in layers with windows")         \
  X(window_unscaled, "rotary positions without scaling in layers with windows")         \
  X(chunk, "attention within chunks")                                                   \
  X(compressed, "attention over pooled tokens")                                         \
  X(index_heads, "heads of the index of sparse attention")                              \
  X(index_dim, "size of a head of the index of sparse attention")                       \
  X(index_chosen, "keys that the index of sparse attention chooses")                    \
  X(index_block, "blocks of keys that the index of sparse attention chooses")           \
  X(linear_kind, "kind of linear mixer")                                                \
  X(linear_heads, "heads of linear mixers")                                             \
  X(linear_head_dim, "size of a head of linear mixers")                                 \
  X(linear_key_heads, "key heads of linear mixers")                                     \
  X(linear_key_dim, "size of a key of linear mixers")                                   \
  X(convolution, "length of the short convolution")                                     \
  X(linear_chunk, "chunk of a linear mixer's training form")                            \
  X(full_rank_gate, "a gate of full rank in linear mixers")                             \
  X(linear_step_rank, "rank of a selective scan's step")                                \
  X(norms_steps, "norms on a selective scan's step")                                    \
  X(linear_output_norm, "a norm behind Mamba-2")                                        \
  X(ffn, "inner width of a dense MLP")                                                  \
  X(gated, "gated MLPs")                                                                \
  X(activation, "activation of MLPs")                                                   \
  X(activation_limit, "limits on activations")                                          \
  X(mlp_bias, "biases in MLPs")                                                         \
  X(experts, "mixture of experts")                                                      \
  X(experts_per_token, "experts of a token")                                            \
  X(expert_ffn, "inner width of an expert")                                             \
  X(shared_ffn, "shared experts")                                                       \
  X(shared_gate, "gates on shared experts")                                             \
  X(router_bias, "a bias in the router")                                                \
  X(bias_in_logits, "a router's bias that adds to its logits")                          \
  X(bias_rate, "step of a bias that moves the choice of experts")                       \
  X(router_scores, "kind of router scores")                                             \
  X(normalized, "router weights that add up to 1")                                      \
  X(routed_scale, "a factor on what routed experts give")                               \
  X(balance_loss, "balance loss of experts")                                            \
  X(groups, "groups of experts")                                                        \
  X(groups_per_token, "groups that a token's experts lie in")                           \
  X(latent_width, "experts in a latent space")                                          \
  X(latent_norm, "a norm behind experts in a latent space")                             \
  X(zero_experts, "experts that compute nothing")                                       \
  X(hashed, "experts that a table chooses")

// What config.json says in another form than a model has it.
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

/// What people call it: completes "lacks ...".
const std::string& words_of(Value value);

/// Visits the values of a model in one of two directions: it sets them from words, or makes words of them.
/// Each call names a value, its place in the model, and its default without words.
class ValueVisitor {
 public:
  ValueVisitor() = default;
  ValueVisitor(const ValueVisitor&) = delete;
  ValueVisitor& operator=(const ValueVisitor&) = delete;
  virtual ~ValueVisitor() = default;

  /// Whether it sets places; else it reads them.
  virtual bool sets() const = 0;
  /// A size of at least 1 that words must say.
  virtual void size(Value value, int64_t& place) = 0;
  /// At least `least`.
  virtual void count(Value value, int64_t& place, int64_t otherwise, int64_t least) = 0;
  void count(Value value, int64_t& place, int64_t otherwise = 0) { count(value, place, otherwise, 0); }
  void size_or(Value value, int64_t& place, int64_t otherwise) { count(value, place, otherwise, 1); }
  virtual void real(Value value, double& place, double otherwise) = 0;
  virtual void flag(Value value, bool& place, bool otherwise) = 0;
  /// Nothing: there is no such cap, factor or limit.
  virtual void option(Value value, std::optional<double>& place) = 0;
  /// One of `known`.
  virtual void word(Value value, std::string& place, const std::vector<std::string>& known) = 0;
  /// Whether the model has a part.
  virtual void part(Value value, bool& present) = 0;
  /// Of rotary positions of all layers that have them; visits its values one by one.
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
/// Parts of it that only some words for layers bring along, and that follow from these.
void visit_other_mixers(ValueVisitor& visitor, ModelDraft& draft);
void visit_experts(ValueVisitor& visitor, ModelDraft& draft);

}  // namespace mpt::models

namespace mpt {
template <>
struct EnumNames<models::Value> {
  static const std::vector<std::pair<models::Value, std::string>>& table();
};
}  // namespace mpt
