// SPDX-License-Identifier: Apache-2.0

// Megatron-Bridge: fields of GPTModelProvider and MLAModelProvider at v0.6.2 that say what a model is. A
// recipe of the model has most of them already.

#include <fmt/ranges.h>

#include "frameworks/megatron-bridge/assignments.h"
#include "frameworks/megatron-core/export.h"

namespace mpt::frameworks {
namespace {

void set_attention_fields(const ModelSpec& m, Assignments& a) {
  a.set("model.num_attention_heads", m.attention().heads);
  a.set("model.qk_layernorm",
        m.attention().latent.has_value() || m.attention().query_key_norm == QueryKeyNorm::per_head);
  if (m.attention().latent) {
    a.set("model.multi_latent_attention", true);
    a.set("model.q_lora_rank",
          m.attention().latent->query_rank > 0 ? std::to_string(m.attention().latent->query_rank) : "None");
    a.set("model.kv_lora_rank", m.attention().latent->key_value_rank);
    a.set("model.qk_head_dim", m.attention().latent->nope_head_dim);
    a.set("model.qk_pos_emb_head_dim", m.attention().latent->rope_head_dim);
    a.set("model.v_head_dim", m.attention().latent->value_head_dim);
    return;
  }
  a.set("model.num_query_groups", m.attention().kv_heads);
  a.set("model.kv_channels", m.attention().head_dim);
  a.set("model.softmax_type", quoted(m.attention().sinks ? "learnable" : "vanilla"));
  const LayerKind* const windowed =
      m.layers.first([](const LayerKind& k) { return k.attention && k.attention->window; });
  a.set("model.window_size",
        windowed != nullptr ? fmt::format("({}, 0)", *windowed->attention->window - 1) : "None");
  const std::string layers = windowed != nullptr ? window_layers_text(m) : "";
  a.set("model.window_attn_skip_freq", layers.empty() ? "None" : layers);
}

void set_yarn_fields(const ModelSpec& m, Assignments& a) {
  const RotaryScaling& scaling = *m.attention().rotation().scaling;
  if (m.attention().latent) {
    a.set("model.rotary_scaling_factor", scaling.factor);
    a.set("model.mscale", scaling.mscale);
    a.set("model.mscale_all_dim", scaling.mscale_all_dim);
    a.set("model.original_max_position_embeddings", scaling.original_positions);
    a.set("model.beta_fast", scaling.beta_fast);
    a.set("model.beta_slow", scaling.beta_slow);
    return;
  }
  a.set("model.yarn_rotary_scaling_factor", scaling.factor);
  a.set("model.yarn_original_max_position_embeddings", scaling.original_positions);
  a.set("model.yarn_beta_fast", scaling.beta_fast);
  a.set("model.yarn_beta_slow", scaling.beta_slow);
  a.set("model.yarn_correction_range_round_to_int", scaling.whole_dimensions);
}

void set_position_fields(const ModelSpec& m, Assignments& a) {
  if (m.position != PositionKind::rotary) {
    const char* kind = m.position == PositionKind::learned ? "learned_absolute" : "none";
    return a.set("model.position_embedding_type", quoted(kind));
  }
  const auto scaled_by = [&](RotaryScalingKind kind) {
    return m.attention().rotation().scaling && m.attention().rotation().scaling->kind == kind;
  };
  const bool yarn = scaled_by(RotaryScalingKind::yarn), llama3 = scaled_by(RotaryScalingKind::llama3);
  a.set("model.position_embedding_type", quoted(yarn && !m.attention().latent ? "yarn" : "rope"));
  if (m.attention().latent) {
    a.set("model.rope_type", quoted(yarn ? "yarn" : "rope"));
    if (!yarn) a.set("model.apply_rope_fusion", false);  // its kernel for latent attention is YaRN's
  }
  a.set("model.rotary_base", int64_t(m.attention().rotation().base));
  a.set("model.rotary_percent", m.attention().rotation().fraction);
  a.set("model.rope_scaling", llama3);
  if (llama3) a.set("model.rope_scaling_factor", m.attention().rotation().scaling->factor);
  if (scaled_by(RotaryScalingKind::linear))
    a.set("model.seq_len_interpolation_factor", m.attention().rotation().scaling->factor);
  if (yarn) set_yarn_fields(m, a);
}

void set_mlp_fields(const ModelSpec& m, Assignments& a) {
  const bool squared = m.mlp().activation == ActivationKind::squared_relu;
  a.set("model.ffn_hidden_size", m.mlp().ffn_hidden);
  a.set("model.gated_linear_unit", m.mlp().gated);
  if (m.mlp().gated && m.mlp().activation_limit) {  // gpt-oss: one is added to the linear half
    a.set("model.activation_func", "quick_gelu");
    a.set("model.glu_linear_offset", 1.0);
    a.set("model.activation_func_clamp_value", *m.mlp().activation_limit);
  } else {
    a.set("model.activation_func", m.mlp().gated ? "torch.nn.functional.silu"
                                   : squared     ? "megatron.core.activations.squared_relu"
                                                 : "torch.nn.functional.gelu");
    // Biases and GELU in one kernel use its approximation by tanh.
    if (!m.mlp().gated && !squared)
      a.set("model.bias_activation_fusion", m.mlp().activation == ActivationKind::gelu_tanh);
  }
  a.set("model.add_bias_linear", m.mlp().bias);
  a.set("model.add_qkv_bias", m.attention().qkv_bias && !m.mlp().bias);
}

void set_expert_fields(const Plan& plan, Assignments& a) {
  const ModelSpec& m = plan.model;
  if (m.moe() == nullptr) return a.set("model.num_moe_experts", "None");
  const MixtureOfExperts& moe = *m.moe();
  const MegatronRouter router = megatron_router(m, plan.layout);
  const bool grouped = moe.groups_per_token < moe.expert_groups;
  a.set("model.num_moe_experts", moe.experts);
  a.set("model.moe_ffn_hidden_size", moe.expert.ffn_hidden);
  a.set("model.moe_shared_expert_intermediate_size",
        moe.shared_ffn_hidden > 0 ? std::to_string(moe.shared_ffn_hidden) : "None");
  a.set("model.moe_shared_expert_gate", moe.shared_gate);
  a.set("model.moe_layer_freq", expert_layers_text(m));
  a.set("model.moe_router_topk", moe.experts_per_token);
  a.set("model.moe_router_num_groups", grouped ? std::to_string(moe.expert_groups) : "None");
  a.set("model.moe_router_group_topk", grouped ? std::to_string(moe.groups_per_token) : "None");
  a.set("model.moe_router_score_function", quoted(router.sigmoid ? "sigmoid" : "softmax"));
  a.set("model.moe_router_enable_expert_bias", router.moves_bias);
  a.set("model.moe_router_bias_update_rate", moe.bias_rate);
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
  const double dropout = plan.layout.execution.kernels.dropout ? 0.1 : 0.0;
  a.set("model.num_layers", m.layers.count());
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
