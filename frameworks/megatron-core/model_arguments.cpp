// SPDX-License-Identifier: Apache-2.0

// Megatron-LM: flags of a model in megatron/training/arguments.py and TransformerConfig at core_v0.19.2.

#include <algorithm>

#include "frameworks/megatron-core/arguments.h"
#include "frameworks/megatron-core/export.h"

namespace mpt::frameworks {
namespace {

// YaRN, the one scaling of frequencies beside Llama 3's and the linear one. Its other numbers are DeepSeek's
// and gpt-oss' own.
void add_yarn(const ModelSpec& m, Arguments& a) {
  a.value("rotary-scaling-factor", m.attention().rotation().scaling->factor);
  if (m.attention().latent) {
    a.value("mscale", m.attention().rotation().scaling->mscale);
    a.value("mscale-all-dim", m.attention().rotation().scaling->mscale_all_dim);
    return;
  }
  a.value("yarn-original-max-position-embeddings", m.attention().rotation().scaling->original_positions);
  a.value("yarn-beta-fast", m.attention().rotation().scaling->beta_fast);
  a.value("yarn-beta-slow", m.attention().rotation().scaling->beta_slow);
  a.flag(m.attention().rotation().scaling->whole_dimensions ? "yarn-correction-range-round-to-int"
                                                            : "no-yarn-correction-range-round-to-int");
}

void add_rotary(const ModelSpec& m, Arguments& a) {
  const bool yarn =
      m.attention().rotation().scaling && m.attention().rotation().scaling->kind == RotaryScalingKind::yarn;
  a.value("position-embedding-type", yarn && !m.attention().latent ? "yarn" : "rope");
  if (m.attention().latent) a.value("rope-type", yarn ? "yarn" : "rope");
  a.flag_if(m.attention().latent && !yarn, "no-rope-fusion");  // its kernel for latent attention is YaRN's
  a.value("rotary-base", int64_t(m.attention().rotation().base));
  if (m.attention().rotation().fraction < 1.0) a.value("rotary-percent", m.attention().rotation().fraction);
  if (!m.attention().rotation().scaling) return;
  switch (m.attention().rotation().scaling->kind) {
    case RotaryScalingKind::llama3:
      a.flag("use-rope-scaling");
      a.value("rope-scaling-factor", m.attention().rotation().scaling->factor);
      break;
    case RotaryScalingKind::linear:
      a.value("rotary-seq-len-interpolation-factor", int64_t(m.attention().rotation().scaling->factor));
      break;
    case RotaryScalingKind::yarn:
      add_yarn(m, a);
      break;
    case RotaryScalingKind::other:
      break;  // refused by supports()
  }
}

void add_positions(const ModelSpec& m, Arguments& a) {
  if (m.position == PositionKind::rotary) return add_rotary(m, a);
  a.value("position-embedding-type", m.position == PositionKind::learned ? "learned_absolute" : "none");
}

void add_mlp(const ModelSpec& m, Arguments& a) {
  a.value("ffn-hidden-size", m.mlp().ffn_hidden);
  if (m.mlp().gated && m.mlp().activation_limit) {  // gpt-oss: one is added to the linear half
    a.flag("quick-geglu");
    a.value("glu-linear-offset", 1.0);
    a.value("activation-func-clamp-value", *m.mlp().activation_limit);
  } else {
    a.flag_if(m.mlp().gated, "swiglu");
    a.flag_if(m.mlp().activation == ActivationKind::squared_relu, "squared-relu");
    // Biases and GELU in one kernel use its approximation by tanh.
    a.flag_if(!m.mlp().gated && m.mlp().activation == ActivationKind::gelu, "no-bias-gelu-fusion");
  }
  a.flag_if(!m.mlp().bias, "disable-bias-linear");
  a.flag_if(m.attention().qkv_bias && !m.mlp().bias, "add-qkv-bias");
}

void add_window(const ModelSpec& m, Arguments& a) {
  const LayerKind* const windowed =
      m.layers.first([](const LayerKind& k) { return k.attention && k.attention->window; });
  if (windowed == nullptr) return;
  a.value("window-size",
          fmt::format("{},0", *windowed->attention->window - 1));  // keys to the left of a query's own
  const std::string layers = window_layers_text(m);
  if (!layers.empty()) a.value("window-attn-skip-freq", layers);
}

void add_attention(const ModelSpec& m, Arguments& a) {
  a.value("num-attention-heads", m.attention().heads);
  if (m.attention().latent) {
    a.flag("multi-latent-attention");
    if (m.attention().latent->query_rank > 0) a.value("q-lora-rank", m.attention().latent->query_rank);
    a.value("kv-lora-rank", m.attention().latent->key_value_rank);
    a.value("qk-head-dim", m.attention().latent->nope_head_dim);
    a.value("qk-pos-emb-head-dim", m.attention().latent->rope_head_dim);
    a.value("v-head-dim", m.attention().latent->value_head_dim);
    a.flag("qk-layernorm");  // the norms of the latents
    return;
  }
  if (m.attention().kv_heads != m.attention().heads) {
    a.flag("group-query-attention");
    a.value("num-query-groups", m.attention().kv_heads);
  }
  if (m.attention().head_dim * m.attention().heads != m.hidden)
    a.value("kv-channels", m.attention().head_dim);
  a.flag_if(m.attention().query_key_norm == QueryKeyNorm::per_head, "qk-layernorm");
  if (m.attention().sinks) a.value("softmax-type", "learnable");
  add_window(m, a);
}

void add_router(const Plan& plan, Arguments& a) {
  const MixtureOfExperts& moe = *plan.model.moe();
  const MegatronRouter router = megatron_router(plan.model, plan.layout);
  a.value("moe-router-topk", moe.experts_per_token);
  if (moe.groups_per_token < moe.expert_groups) {
    a.value("moe-router-num-groups", moe.expert_groups);
    a.value("moe-router-group-topk", moe.groups_per_token);
  }
  if (router.sigmoid) a.value("moe-router-score-function", "sigmoid");
  a.flag_if(router.moves_bias, "moe-router-enable-expert-bias");
  if (router.moves_bias) a.value("moe-router-bias-update-rate", moe.bias_rate);
  a.flag_if(router.before_choice, "moe-router-pre-softmax");
  if (router.scale) a.value("moe-router-topk-scaling-factor", *router.scale);
  if (router.fp32) a.value("moe-router-dtype", "fp32");
  a.value("moe-router-load-balancing-type", router.balance);
  if (moe.balance_loss > 0.0) a.value("moe-aux-loss-coeff", moe.balance_loss);
}

void add_experts(const Plan& plan, Arguments& a) {
  const ModelSpec& m = plan.model;
  if (m.moe() == nullptr) return;
  a.value("num-experts", m.moe()->experts);
  a.value("moe-ffn-hidden-size", m.moe()->expert.ffn_hidden);
  if (m.moe()->shared_ffn_hidden > 0)
    a.value("moe-shared-expert-intermediate-size", m.moe()->shared_ffn_hidden);
  a.flag_if(m.moe()->shared_gate, "moe-shared-expert-gate");
  if (m.layers.any([](const LayerKind& k) { return !k.moe; }))
    a.value("moe-layer-freq", expert_layers_text(m));
  add_router(plan, a);
  const bool once = sends_tokens_once(plan);
  a.value("moe-token-dispatcher-type", once ? "flex" : "alltoall");
  if (once) a.value("moe-flex-dispatcher-backend", dispatch_backend(plan));
  a.flag_if(plan.layout.overlap_exchange, "overlap-moe-expert-parallel-comm");
  a.flag("moe-grouped-gemm");
}

}  // namespace

void add_model_arguments(const Plan& plan, Arguments& a) {
  const ModelSpec& m = plan.model;
  a.value("num-layers", m.layers.count());
  a.value("hidden-size", m.hidden);
  add_mlp(m, a);
  add_attention(m, a);
  a.value("seq-length", plan.workload.sequence);
  a.value("max-position-embeddings", std::max(m.max_positions, plan.workload.sequence));
  a.value("vocab-size", m.vocab);
  a.value("normalization", m.norm == NormKind::rms_norm ? "RMSNorm" : "LayerNorm");
  a.value("norm-epsilon", m.norm_epsilon);
  add_positions(m, a);
  a.flag_if(!m.tied_embeddings, "untie-embeddings-and-output-weights");
  a.value("attention-dropout", plan.layout.execution.kernels.dropout ? 0.1 : 0.0);
  a.value("hidden-dropout", plan.layout.execution.kernels.dropout ? 0.1 : 0.0);
  add_experts(plan, a);
  if (m.next_token_layers > 0) a.value("mtp-num-layers", m.next_token_layers);
}

}  // namespace mpt::frameworks
