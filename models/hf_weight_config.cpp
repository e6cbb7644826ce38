// SPDX-License-Identifier: Apache-2.0

// config.json of a model whose weights are published in Hugging Face's form.

#include <cmath>
#include <map>

#include "base/json.h"
#include "models/hf_weight_family.h"
#include "models/hf_weights.h"

namespace mpt::models {
namespace {

Json gpt2_config(const ModelSpec& m) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"activation_function", m.mlp().activation == ActivationKind::gelu_tanh
                                      ? "gelu_new"
                                      : hugging_face_activation(m.mlp().activation)},
          {"layer_norm_epsilon", m.norm_epsilon},
          {"n_embd", m.hidden},
          {"n_head", m.attention().heads},
          {"n_inner", m.mlp().ffn_hidden},
          {"n_layer", m.layers.count()},
          {"n_positions", m.max_positions},
          {"tie_word_embeddings", m.tied_embeddings},
          {"vocab_size", m.vocab},
          {"attn_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"resid_pdrop", 0.0}};
}

Json rope_scaling(const RotaryScaling& s) {
  Json scaling{{"rope_type", enum_name(s.kind)}, {"factor", s.factor}};
  if (s.kind == RotaryScalingKind::llama3) {
    scaling["low_freq_factor"] = s.low_frequency_factor;
    scaling["high_freq_factor"] = s.high_frequency_factor;
    scaling["original_max_position_embeddings"] = s.original_positions;
  } else if (s.kind == RotaryScalingKind::yarn) {
    scaling["original_max_position_embeddings"] = s.original_positions;
    scaling["beta_fast"] = s.beta_fast;
    scaling["beta_slow"] = s.beta_slow;
    scaling["truncate"] = s.whole_dimensions;
    if (s.mscale > 0.0) scaling["mscale"] = s.mscale;
    if (s.mscale_all_dim > 0.0) scaling["mscale_all_dim"] = s.mscale_all_dim;
  }
  return scaling;
}

const std::pair<const char*, const char*>& names_of(WeightFamily family) {
  using F = WeightFamily;
  static const std::map<F, std::pair<const char*, const char*>> names{
      {F::llama, {"LlamaForCausalLM", "llama"}},
      {F::mistral, {"MistralForCausalLM", "mistral"}},
      {F::qwen2, {"Qwen2ForCausalLM", "qwen2"}},
      {F::qwen3, {"Qwen3ForCausalLM", "qwen3"}},
      {F::mixtral, {"MixtralForCausalLM", "mixtral"}},
      {F::qwen2_moe, {"Qwen2MoeForCausalLM", "qwen2_moe"}},
      {F::qwen3_moe, {"Qwen3MoeForCausalLM", "qwen3_moe"}},
      {F::qwen3_next, {"Qwen3NextForCausalLM", "qwen3_next"}},
      {F::qwen3_5_text, {"Qwen3_5ForCausalLM", "qwen3_5_text"}},
      {F::smollm3, {"SmolLM3ForCausalLM", "smollm3"}},
      {F::gemma, {"GemmaForCausalLM", "gemma"}},
      {F::gemma2, {"Gemma2ForCausalLM", "gemma2"}},
      {F::gemma3_text, {"Gemma3ForCausalLM", "gemma3_text"}},
      {F::olmo2, {"Olmo2ForCausalLM", "olmo2"}},
      {F::olmo3, {"Olmo3ForCausalLM", "olmo3"}},
      {F::granite, {"GraniteForCausalLM", "granite"}},
      {F::glm4_moe, {"Glm4MoeForCausalLM", "glm4_moe"}},
      {F::gpt_oss, {"GptOssForCausalLM", "gpt_oss"}},
      {F::deepseek_v2, {"DeepseekV2ForCausalLM", "deepseek_v2"}},
      {F::deepseek_v3, {"DeepseekV3ForCausalLM", "deepseek_v3"}}};
  return names.at(family);
}

Json layers_without_experts(const ModelSpec& m) {
  Json layers = Json::array();
  for (int64_t l = 0; l < m.layers.count(); ++l) {
    if (!layer_has_experts(m, l)) layers.push_back(l);
  }
  return layers;
}

void add_mixtral(Json& config, const MixtureOfExperts& moe) {
  config["num_local_experts"] = moe.experts;
  config["num_experts_per_tok"] = moe.experts_per_token;
  config["router_aux_loss_coef"] = moe.balance_loss;
}

// Routers with a factor and groups, and experts that all tokens share.
void add_routed(Json& config, const ModelSpec& m, const MixtureOfExperts& moe) {
  int64_t dense = 0;
  while (dense < m.layers.count() && !m.layers[dense].moe) ++dense;
  config["first_k_dense_replace"] = dense;
  config["n_routed_experts"] = moe.experts;
  config["num_experts_per_tok"] = moe.experts_per_token;
  config["moe_intermediate_size"] = moe.expert.ffn_hidden;
  config["n_shared_experts"] = moe.shared_ffn_hidden / moe.expert.ffn_hidden;
  config["routed_scaling_factor"] = moe.routed_scale;
  config["norm_topk_prob"] = moe.normalized;
  config["n_group"] = moe.expert_groups;
  config["topk_group"] = moe.groups_per_token;
}

void add_latent(Json& config, const Attention& a, WeightFamily family) {
  const LatentAttention& l = *a.latent;
  config["q_lora_rank"] = l.query_rank > 0 ? Json(l.query_rank) : Json(nullptr);
  config["kv_lora_rank"] = l.key_value_rank;
  config["qk_nope_head_dim"] = l.nope_head_dim;
  config["qk_rope_head_dim"] = l.rope_head_dim;
  config["v_head_dim"] = l.value_head_dim;
  config["attention_bias"] = a.qkv_bias;
  config.erase("head_dim");
  if (family == WeightFamily::deepseek_v2) {
    const bool limited = config.value("topk_group", 1) < config.value("n_group", 1);
    config["topk_method"] = limited ? "group_limited_greedy" : "greedy";
  }
}

// Which layers have windows, and how they differ from the others.
void add_windows(Json& config, const ModelSpec& m) {
  std::vector<std::string> types;
  const Attention* windowed = nullptr;
  for (int64_t l = 0; l < m.layers.count(); ++l) {
    const Attention& a = *m.layers[l].attention;
    types.emplace_back(a.window ? "sliding_attention" : "full_attention");
    if (a.window) windowed = &a;
  }
  config["layer_types"] = types;
  if (windowed != nullptr) config["sliding_window"] = *windowed->window;
}

void add_gemma(Json& config, const ModelSpec& m, WeightFamily family) {
  const Attention& a = m.attention();
  config["hidden_activation"] = config["hidden_act"];
  config.erase("hidden_act");
  if (family == WeightFamily::gemma) return;
  add_windows(config, m);
  const double scale = a.score_scale.value_or(0.0);
  // The classes take whole numbers alone.
  config["query_pre_attn_scalar"] = scale > 0.0 ? std::llround(1.0 / (scale * scale)) : a.head_dim;
  config["attn_logit_softcapping"] = a.score_cap ? Json(*a.score_cap) : Json(nullptr);
  config["final_logit_softcapping"] = m.logit_cap ? Json(*m.logit_cap) : Json(nullptr);
  if (family != WeightFamily::gemma3_text) return;
  for (const bool window : {false, true}) {
    const LayerKind* const kind =
        m.layers.first([&](const LayerKind& k) { return k.attention->window.has_value() == window; });
    if (kind != nullptr)
      config[window ? "rope_local_base_freq" : "rope_theta"] = kind->attention->rotation().base;
  }
}

bool is_qwen(WeightFamily family) {
  return family == WeightFamily::qwen2_moe || family == WeightFamily::qwen3_moe ||
         family == WeightFamily::qwen3_next;
}

void add_qwen_experts(Json& config, const ModelSpec& m, const MixtureOfExperts& moe) {
  config["num_experts"] = moe.experts;
  config["num_experts_per_tok"] = moe.experts_per_token;
  config["moe_intermediate_size"] = moe.expert.ffn_hidden;
  config["norm_topk_prob"] = moe.normalized;
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = layers_without_experts(m);
  config["router_aux_loss_coef"] = moe.balance_loss;
  if (moe.shared_ffn_hidden > 0) config["shared_expert_intermediate_size"] = moe.shared_ffn_hidden;
}

// Which layers have Gated DeltaNet in place of attention, and its sizes.
void add_gated_delta(Json& config, const ModelSpec& m) {
  std::vector<std::string> types;
  for (int64_t l = 0; l < m.layers.count(); ++l)
    types.emplace_back(m.layers[l].linear ? "linear_attention" : "full_attention");
  config["layer_types"] = types;
  config["partial_rotary_factor"] = m.attention().rotation().fraction;
  const LinearMixer& l = *m.layers.first([](const LayerKind& k) { return k.linear.has_value(); })->linear;
  config["linear_num_value_heads"] = l.heads;
  config["linear_value_head_dim"] = l.head_dim;
  config["linear_num_key_heads"] = l.key_heads;
  config["linear_key_head_dim"] = l.key_dim;
  config["linear_conv_kernel_dim"] = l.convolution;
}

void add_family(Json& config, const ModelSpec& m, WeightFamily family) {
  using F = WeightFamily;
  const Attention& a = m.attention();
  if (family == F::granite) {
    config["embedding_multiplier"] = m.embedding_scale.value_or(1.0);
    config["attention_multiplier"] = a.score_scale.value_or(1.0 / std::sqrt(double(a.head_dim)));
    config["residual_multiplier"] = m.residual_scale.value_or(1.0);
    config["logits_scaling"] = 1.0 / m.logit_scale.value_or(1.0);
  }
  if (family == F::llama || family == F::granite || family == F::qwen3 || family == F::qwen3_moe ||
      family == F::smollm3 || family == F::olmo2 || family == F::olmo3 || family == F::glm4_moe ||
      family == F::gpt_oss || family == F::qwen3_next || family == F::qwen3_5_text)
    config["attention_bias"] = a.qkv_bias;
  if (family == F::llama || family == F::smollm3 || family == F::granite) config["mlp_bias"] = false;
  if (family == F::qwen2_moe) config["qkv_bias"] = a.qkv_bias;
  if (family == F::mixtral) add_mixtral(config, *m.moe());
  if (family == F::mistral || family == F::mixtral)
    config["sliding_window"] = a.window ? Json(*a.window) : Json();
  if (family == F::gemma || family == F::gemma2 || family == F::gemma3_text) add_gemma(config, m, family);
  if (family == F::olmo3) add_windows(config, m);
  if (family == F::gpt_oss) {
    add_windows(config, m);
    config["num_local_experts"] = m.moe()->experts;
    config["num_experts_per_tok"] = m.moe()->experts_per_token;
    config["router_aux_loss_coef"] = m.moe()->balance_loss;
    if (m.mlp().activation_limit) config["swiglu_limit"] = *m.mlp().activation_limit;
  }
  if (m.moe() != nullptr && is_qwen(family)) add_qwen_experts(config, m, *m.moe());
  if (family == F::qwen3_next || family == F::qwen3_5_text) add_gated_delta(config, m);
  if (family == F::smollm3) {
    std::vector<int> with_positions;
    for (int64_t l = 0; l < m.layers.count(); ++l)
      with_positions.push_back(m.layers[l].attention->rotary ? 1 : 0);
    config["no_rope_layers"] = with_positions;
    // The class has numbers of tokens that a smaller vocabulary lacks.
    constexpr int64_t kTokens = 128005;
    for (const char* token : {"pad_token_id", "bos_token_id", "eos_token_id"}) {
      if (m.vocab < kTokens) config[token] = nullptr;
    }
  }
  if (family == F::glm4_moe || family == F::deepseek_v2 || family == F::deepseek_v3)
    add_routed(config, m, *m.moe());
  if (family == F::glm4_moe) {
    config["use_qk_norm"] = a.query_key_norm == QueryKeyNorm::per_head;
    config["partial_rotary_factor"] = a.rotation().fraction;
  }
  if (family == F::glm4_moe || family == F::deepseek_v3)
    config["num_nextn_predict_layers"] = m.next_token_layers;
  if (family == F::qwen3_next || family == F::qwen3_5_text)
    config["mtp_num_hidden_layers"] = m.next_token_layers;
  if (a.latent) add_latent(config, a, family);
}

Json llama_config(const ModelSpec& m, WeightFamily family) {
  const auto& [architecture, type] = names_of(family);
  const LayerKind* const rotated =
      m.layers.first([](const LayerKind& k) { return k.attention && k.attention->rotary; });
  const Rotary& rotary = rotated != nullptr ? *rotated->attention->rotary : m.attention().rotation();
  Json config{{"architectures", {architecture}},
              {"model_type", type},
              {"hidden_act", hugging_face_activation(m.mlp().activation)},
              {"head_dim", m.attention().head_dim},
              {"hidden_size", m.hidden},
              {"intermediate_size", m.mlp().ffn_hidden},
              {"max_position_embeddings", m.max_positions},
              {"num_attention_heads", m.attention().heads},
              {"num_hidden_layers", m.layers.count()},
              {"num_key_value_heads", m.attention().kv_heads},
              {"rms_norm_eps", m.norm_epsilon},
              {"rope_theta", rotary.base},
              {"tie_word_embeddings", m.tied_embeddings},
              {"vocab_size", m.vocab}};
  if (rotary.scaling) config["rope_scaling"] = rope_scaling(*rotary.scaling);
  add_family(config, m, family);
  return config;
}

}  // namespace

std::string hugging_face_activation(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::gelu:
      return "gelu";
    case ActivationKind::gelu_tanh:
      return "gelu_pytorch_tanh";
    case ActivationKind::silu:
      return "silu";
    case ActivationKind::relu:
      return "relu";
    case ActivationKind::squared_relu:
      return "relu2";
    case ActivationKind::xielu:
      return "xielu";
    case ActivationKind::situ:
      return "situ";
  }
  return "";
}

std::string hugging_face_config(const ModelSpec& m) {
  const WeightFamily family = weight_family_of(m);
  return (family == WeightFamily::gpt2 ? gpt2_config(m) : llama_config(m, family)).dump(2) + "\n";
}

}  // namespace mpt::models
