// SPDX-License-Identifier: Apache-2.0
#include "models/values.h"

namespace mpt::models {
namespace {

using V = Value;

void visit_model(ValueVisitor& v, ModelSpec& m) {
  v.size(V::hidden, m.hidden);
  v.size(V::vocab, m.vocab);
  v.size(V::max_positions, m.max_positions);
  v.choice(V::norm, m.norm, NormKind::rms_norm);
  v.choice(V::placement, m.norm_placement, NormPlacement::pre);
  if (m.norm == NormKind::layer_norm) v.flag(V::norm_bias, m.norm_bias, true);
  v.real(V::norm_epsilon, m.norm_epsilon, 1e-5);
  v.flag(V::parallel_residual, m.parallel_residual, false);
  v.flag(V::embedding_norm, m.embedding_norm, false);
  v.choice(V::position, m.position, PositionKind::rotary);
  v.flag(V::tied, m.tied_embeddings, false);
  v.flag(V::head_bias, m.head_bias, false);
  v.option(V::embedding_scale, m.embedding_scale);
  v.option(V::residual_scale, m.residual_scale);
  v.option(V::logit_scale, m.logit_scale);
  v.option(V::logit_cap, m.logit_cap);
  v.count(V::next_token_layers, m.next_token_layers);
  v.size_or(V::residual_streams, m.residual_streams, 1);
  v.count(V::residual_block, m.residual_block);
  v.count(V::layer_embedding, m.layer_embedding);
  if (m.layer_embedding > 0) v.count(V::layer_vocab, m.layer_vocab);
}

// Sizes of the compression, from which those of heads follow.
void visit_latent(ValueVisitor& v, Attention& a) {
  if (!a.latent) a.latent.emplace();
  v.count(V::query_rank, a.latent->query_rank);
  v.size(V::kv_rank, a.latent->key_value_rank);
  v.size(V::nope_dim, a.latent->nope_head_dim);
  v.size(V::rope_dim, a.latent->rope_head_dim);
  v.size(V::v_dim, a.latent->value_head_dim);
  a.head_dim = a.latent->nope_head_dim + a.latent->rope_head_dim;
  a.kv_heads = a.heads;  // the compressed keys and values are expanded for every head
}

void visit_rotary(ValueVisitor& v, const ModelSpec& m, Attention& a) {
  if (m.position != PositionKind::rotary) {
    if (v.sets()) a.rotary.reset();
    return;
  }
  if (!a.rotary) a.rotary.emplace();
  v.real(V::rotary_base, a.rotary->base, 10000.0);
  v.real(V::rotary_fraction, a.rotary->fraction, 1.0);
  v.scaling(a.rotary->scaling);
}

// A size of values equal to that of keys is stored as 0.
void visit_value_dim(ValueVisitor& v, V value, Attention& a, int64_t otherwise) {
  int64_t size = a.value_dim > 0 ? a.value_dim : a.head_dim;
  v.size_or(value, size, otherwise);
  a.value_dim = size == a.head_dim ? 0 : size;
}

void visit_attention(ValueVisitor& v, const ModelSpec& m, Attention& a) {
  v.size(V::heads, a.heads);
  bool latent = a.latent.has_value(), compressed = a.compressed.has_value();
  v.flag(V::latent, latent, false);
  if (latent) {
    visit_latent(v, a);
  } else {
    v.size_or(V::kv_heads, a.kv_heads, a.heads);
    v.size_or(V::head_dim, a.head_dim, std::max<int64_t>(1, m.hidden / std::max<int64_t>(1, a.heads)));
    visit_value_dim(v, V::value_dim, a, a.head_dim);
  }
  v.flag(V::qkv_bias, a.qkv_bias, false);
  v.flag(V::output_bias, a.output_bias, false);
  v.choice(V::query_key_norm, a.query_key_norm, QueryKeyNorm::none);
  v.flag(V::sinks, a.sinks, false);
  v.choice(V::gate, a.output_gate, OutputGate::none);
  v.flag(V::keys_are_values, a.keys_are_values, false);
  v.option(V::score_cap, a.score_cap);
  v.option(V::score_scale, a.score_scale);
  v.flag(V::compressed, compressed, false);
  visit_rotary(v, m, a);
}

void visit_window(ValueVisitor& v, ModelDraft& d) {
  if (v.sets()) d.window = d.full;
  Attention& a = d.window;
  int64_t window = a.window.value_or(0);
  v.count(V::window, window);
  if (v.sets()) window > 0 ? void(a.window = window) : a.window.reset();
  if (!d.has_mixer("window")) return;
  v.size_or(V::window_heads, a.heads, d.full.heads);
  if (!a.latent) {
    v.size_or(V::window_kv_heads, a.kv_heads, d.full.kv_heads);
    v.size_or(V::window_head_dim, a.head_dim, d.full.head_dim);
    visit_value_dim(v, V::window_value_dim, a, d.full.value_dim > 0 ? d.full.value_dim : a.head_dim);
  }
  v.flag(V::window_keys_are_values, a.keys_are_values, d.full.keys_are_values);
  v.flag(V::window_sinks, a.sinks, d.full.sinks);
  if (!a.rotary || !d.full.rotary) return;
  v.real(V::window_rotary_base, a.rotary->base, d.full.rotary->base);
  v.real(V::window_rotary_fraction, a.rotary->fraction, d.full.rotary->fraction);
  bool unscaled = d.full.rotary->scaling && !a.rotary->scaling;
  v.flag(V::window_unscaled, unscaled, false);
  if (v.sets() && unscaled) a.rotary->scaling.reset();
}

void visit_index(ValueVisitor& v, ModelDraft& d) {
  if (!d.has_mixer("sparse") && !d.has_mixer("sparse_shared")) return;
  if (!d.index) d.index.emplace();
  v.size(V::index_heads, d.index->heads);
  v.size(V::index_dim, d.index->head_dim);
  v.size(V::index_chosen, d.index->chosen);
  v.size_or(V::index_block, d.index->block, 1);
}

void visit_mlp(ValueVisitor& v, ModelDraft& d) {
  if (!d.mlp) d.mlp.emplace();
  v.size(V::ffn, d.mlp->ffn_hidden);
  v.flag(V::gated, d.mlp->gated, false);
  v.choice(V::activation, d.mlp->activation, ActivationKind::silu);
  v.option(V::activation_limit, d.mlp->activation_limit);
  v.flag(V::mlp_bias, d.mlp->bias, false);
}

void visit_router(ValueVisitor& v, MixtureOfExperts& e) {
  const MixtureOfExperts usual;
  v.flag(V::router_bias, e.router_bias, false);
  if (e.router_bias) {
    v.flag(V::bias_in_logits, e.bias_in_logits, false);
    v.real(V::bias_rate, e.bias_rate, usual.bias_rate);
  }
  v.choice(V::router_scores, e.scores, RouterScores::softmax);
  v.flag(V::normalized, e.normalized, true);
  v.real(V::routed_scale, e.routed_scale, 1.0);
  v.real(V::balance_loss, e.balance_loss, usual.balance_loss);
  v.size_or(V::groups, e.expert_groups, 1);
  v.size_or(V::groups_per_token, e.groups_per_token, 1);
  v.flag(V::hashed, e.hashed, false);
}

void visit_layers(ValueVisitor& v, ModelDraft& d) {
  auto layers = int64_t(d.mixers.size());
  v.size(V::layers, layers);
  d.mixers.resize(size_t(layers), "full");
  d.mlps.resize(size_t(layers), "dense");
  v.list(V::mixers, d.mixers);
  v.list(V::mlps, d.mlps);
  v.flag(V::full_without_rotary, d.full_without_rotary, false);
  v.flag(V::dense_beside_experts, d.dense_beside_experts, false);
  v.count(V::borrowers, d.borrowers);
  v.flag(V::borrowers_are_wide, d.borrowers_are_wide, false);
  bool unequal = d.made.has_value();
  v.flag(V::unequal_layers, unequal, false);
}

}  // namespace

void visit_other_mixers(ValueVisitor& v, ModelDraft& d) {
  if (d.has_mixer("chunk")) {
    int64_t chunk = d.chunk.value_or(0);
    v.size(V::chunk, chunk);
    d.chunk = chunk;
  }
  visit_index(v, d);
  if (d.has_mixer("convolution")) {
    if (!d.convolution) d.convolution.emplace();
    v.size(V::convolution, d.convolution->length);
  }
  if (!d.has_mixer("linear") && !d.has_mixer("both")) return;
  if (!d.linear) d.linear.emplace();
  LinearMixer& l = *d.linear;
  v.choice(V::linear_kind, l.kind, LinearKind::gated_delta);
  v.size(V::linear_heads, l.heads);
  v.size(V::linear_head_dim, l.head_dim);
  v.size(V::linear_key_heads, l.key_heads);
  v.size(V::linear_key_dim, l.key_dim);
  v.count(V::convolution, l.convolution);
  v.size_or(V::linear_chunk, l.chunk, LinearMixer{}.chunk);
  v.flag(V::full_rank_gate, l.full_rank_gate, false);
  v.count(V::linear_step_rank, l.step_rank);
  v.flag(V::norms_steps, l.norms_steps, false);
  v.flag(V::linear_output_norm, l.output_norm, true);
}

void visit_experts(ValueVisitor& v, ModelDraft& d) {
  if (!d.has_mlp("experts")) return;
  if (!d.moe) d.moe.emplace();
  MixtureOfExperts& e = *d.moe;
  v.size(V::experts, e.experts);
  v.size(V::experts_per_token, e.experts_per_token);
  if (v.sets()) e.expert = *d.mlp;
  v.size(V::expert_ffn, e.expert.ffn_hidden);
  v.count(V::shared_ffn, e.shared_ffn_hidden);
  if (e.shared_ffn_hidden > 0) v.flag(V::shared_gate, e.shared_gate, false);
  visit_router(v, e);
  v.count(V::latent_width, e.latent_width);
  if (e.latent_width > 0) v.flag(V::latent_norm, e.latent_norm, false);
  v.count(V::zero_experts, e.zero_experts);
}

const std::string& words_of(Value value) {
  static const std::string table[] = {
#include "generated/value_words.inc"
  };
  return table[size_t(value)];
}

void ValueVisitor::scaling(std::optional<RotaryScaling>& place) {
  bool scaled = place.has_value();
  flag(V::rotary_scaling, scaled, false);
  if (!scaled) return place.reset();
  if (!place) place.emplace();
  RotaryScaling& s = *place;
  const RotaryScaling usual;
  choice(V::rotary_scaling, s.kind, RotaryScalingKind::linear);
  real(V::scaling_factor, s.factor, 1.0);
  real(V::low_frequency_factor, s.low_frequency_factor, usual.low_frequency_factor);
  real(V::high_frequency_factor, s.high_frequency_factor, usual.high_frequency_factor);
  size_or(V::original_positions, s.original_positions, usual.original_positions);
  real(V::beta_fast, s.beta_fast, usual.beta_fast);
  real(V::beta_slow, s.beta_slow, usual.beta_slow);
  real(V::mscale, s.mscale, usual.mscale);
  real(V::mscale_all_dim, s.mscale_all_dim, usual.mscale_all_dim);
  flag(V::whole_dimensions, s.whole_dimensions, usual.whole_dimensions);
}

void visit_values(ValueVisitor& visitor, ModelDraft& draft) {
  visit_model(visitor, draft.model);
  visit_layers(visitor, draft);
  visit_attention(visitor, draft.model, draft.full);
  visit_window(visitor, draft);
  visit_other_mixers(visitor, draft);
  visit_mlp(visitor, draft);
  visit_experts(visitor, draft);
}

}  // namespace mpt::models
