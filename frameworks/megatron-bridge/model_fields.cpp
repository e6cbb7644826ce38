// SPDX-License-Identifier: Apache-2.0

// Megatron-Bridge: fields of GPTModelProvider and MLAModelProvider at v0.6.2 that say what a model is. A
// recipe of the model has most of them already.

#include <fmt/ranges.h>

#include "frameworks/megatron-bridge/assignments.h"
#include "frameworks/megatron-core/export.h"

namespace mpt::frameworks {
namespace {

void set_attention_fields(const ModelSpec& m, Assignments& a) {
  a.set("model.num_attention_heads", m.heads);
  a.set("model.qk_layernorm", m.latent.has_value() || m.query_key_norm == QueryKeyNorm::per_head);
  if (m.latent) {
    a.set("model.multi_latent_attention", true);
    a.set("model.q_lora_rank", m.latent->query_rank > 0 ? std::to_string(m.latent->query_rank) : "None");
    a.set("model.kv_lora_rank", m.latent->key_value_rank);
    a.set("model.qk_head_dim", m.latent->nope_head_dim);
    a.set("model.qk_pos_emb_head_dim", m.latent->rope_head_dim);
    a.set("model.v_head_dim", m.latent->value_head_dim);
    return;
  }
  a.set("model.num_query_groups", m.kv_heads);
  a.set("model.kv_channels", m.head_dim);
  a.set("model.softmax_type", quoted(m.attention_sinks ? "learnable" : "vanilla"));
  a.set("model.window_size", m.sliding_window ? fmt::format("({}, 0)", *m.sliding_window - 1) : "None");
  if (!m.sliding_window || m.sliding_window_interval == 1)
    return a.set("model.window_attn_skip_freq", "None");
  if (m.sliding_window_interval == 2) return a.set("model.window_attn_skip_freq", int64_t{2});
  std::vector<int> windowed;
  for (int64_t l = 0; l < m.layers; ++l) windowed.push_back(l % m.sliding_window_interval == 0 ? 1 : 0);
  a.set("model.window_attn_skip_freq", fmt::format("[{}]", fmt::join(windowed, ", ")));
}

void set_yarn_fields(const ModelSpec& m, Assignments& a) {
  if (m.latent) {
    a.set("model.rotary_scaling_factor", m.rotary_scaling->factor);
    a.set("model.mscale", m.rotary_scaling->mscale);
    a.set("model.mscale_all_dim", m.rotary_scaling->mscale_all_dim);
    return;
  }
  a.set("model.yarn_rotary_scaling_factor", m.rotary_scaling->factor);
  a.set("model.yarn_original_max_position_embeddings", m.rotary_scaling->original_positions);
  a.set("model.yarn_beta_fast", m.rotary_scaling->beta_fast);
  a.set("model.yarn_beta_slow", m.rotary_scaling->beta_slow);
  a.set("model.yarn_correction_range_round_to_int", m.rotary_scaling->whole_dimensions);
}

void set_position_fields(const ModelSpec& m, Assignments& a) {
  if (m.position != PositionKind::rotary) {
    const char* kind = m.position == PositionKind::learned ? "learned_absolute" : "none";
    return a.set("model.position_embedding_type", quoted(kind));
  }
  const auto scaled_by = [&](RotaryScalingKind kind) {
    return m.rotary_scaling && m.rotary_scaling->kind == kind;
  };
  const bool yarn = scaled_by(RotaryScalingKind::yarn), llama3 = scaled_by(RotaryScalingKind::llama3);
  a.set("model.position_embedding_type", quoted(yarn && !m.latent ? "yarn" : "rope"));
  if (m.latent) a.set("model.rope_type", quoted(yarn ? "yarn" : "rope"));
  a.set("model.rotary_base", int64_t(m.rotary_base));
  a.set("model.rotary_percent", m.rotary_fraction);
  a.set("model.rope_scaling", llama3);
  if (llama3) a.set("model.rope_scaling_factor", m.rotary_scaling->factor);
  if (scaled_by(RotaryScalingKind::linear))
    a.set("model.seq_len_interpolation_factor", m.rotary_scaling->factor);
  if (yarn) set_yarn_fields(m, a);
}

void set_mlp_fields(const ModelSpec& m, Assignments& a) {
  const bool squared = m.activation == ActivationKind::squared_relu;
  a.set("model.ffn_hidden_size", m.ffn_hidden);
  a.set("model.gated_linear_unit", m.gated_mlp);
  if (m.gated_mlp && m.activation_limit) {  // gpt-oss: one is added to the linear half
    a.set("model.activation_func", "quick_gelu");
    a.set("model.glu_linear_offset", 1.0);
    a.set("model.activation_func_clamp_value", *m.activation_limit);
  } else {
    a.set("model.activation_func", m.gated_mlp ? "torch.nn.functional.silu"
                                   : squared   ? "megatron.core.activations.squared_relu"
                                               : "torch.nn.functional.gelu");
    // Biases and GELU in one kernel use its approximation by tanh.
    if (!m.gated_mlp && !squared)
      a.set("model.bias_activation_fusion", m.activation == ActivationKind::gelu_tanh);
  }
  a.set("model.add_bias_linear", m.mlp_bias);
  a.set("model.add_qkv_bias", m.qkv_bias && !m.mlp_bias);
}

void set_expert_fields(const Plan& plan, Assignments& a) {
  const ModelSpec& m = plan.model;
  if (!m.moe) return a.set("model.num_moe_experts", "None");
  const MixtureOfExperts& moe = *m.moe;
  const MegatronRouter router = megatron_router(m, plan.layout);
  const bool grouped = moe.groups_per_token < moe.expert_groups;
  a.set("model.num_moe_experts", moe.experts);
  a.set("model.moe_ffn_hidden_size", moe.expert_ffn_hidden);
  a.set("model.moe_shared_expert_intermediate_size",
        moe.shared_ffn_hidden > 0 ? std::to_string(moe.shared_ffn_hidden) : "None");
  a.set("model.moe_shared_expert_gate", moe.shared_gate);
  a.set("model.moe_layer_freq", expert_layers_text(m));
  a.set("model.moe_router_topk", moe.experts_per_token);
  a.set("model.moe_router_num_groups", grouped ? std::to_string(moe.expert_groups) : "None");
  a.set("model.moe_router_group_topk", grouped ? std::to_string(moe.groups_per_token) : "None");
  a.set("model.moe_router_score_function", quoted(router.sigmoid ? "sigmoid" : "softmax"));
  a.set("model.moe_router_enable_expert_bias", router.sigmoid);
  a.set("model.moe_router_pre_softmax", router.before_choice);
  a.set("model.moe_router_topk_scaling_factor", router.scale ? fmt::format("{}", *router.scale) : "None");
  if (router.fp32) a.set("model.moe_router_dtype", quoted("fp32"));
  a.set("model.moe_router_load_balancing_type", quoted(router.balance));
  a.set("model.moe_aux_loss_coeff", moe.balance_loss);
  a.set("model.moe_grouped_gemm", true);
}

}  // namespace

void set_model_fields(const Plan& plan, Assignments& a) {
  const ModelSpec& m = plan.model;
  const double dropout = plan.layout.execution.dropout ? 0.1 : 0.0;
  a.set("model.num_layers", m.layers);
  a.set("model.hidden_size", m.hidden);
  set_mlp_fields(m, a);
  set_attention_fields(m, a);
  a.set("model.vocab_size", m.vocab);
  a.set("model.normalization", quoted(m.norm == NormKind::rms_norm ? "RMSNorm" : "LayerNorm"));
  a.set("model.layernorm_epsilon", m.norm_epsilon);
  set_position_fields(m, a);
  a.set("model.share_embeddings_and_output_weights", m.tied_embeddings);
  a.set("model.attention_dropout", dropout);
  a.set("model.hidden_dropout", dropout);
  set_expert_fields(plan, a);
  a.set("model.mtp_num_layers", m.next_token_layers > 0 ? std::to_string(m.next_token_layers) : "None");
}

}  // namespace mpt::frameworks
