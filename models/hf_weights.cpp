// SPDX-License-Identifier: Apache-2.0
#include "models/hf_weights.h"

#include "base/json.h"

namespace mpt::models {
namespace {

enum class WeightFamily { gpt2, llama, qwen2, qwen3, mixtral };

[[noreturn]] void refuse(const ModelSpec& m, const std::string& found) {
  throw UserError(Problem{fmt::format("model \"{}\"", m.name), found,
                          "a model like GPT-2, Llama, Qwen2, Qwen3 or Mixtral",
                          "no Hugging Face model has such weights"});
}

WeightFamily family_of(const ModelSpec& m) {
  if (m.attention().latent.has_value() || m.norm_placement != NormPlacement::pre || m.parallel_residual ||
      m.embedding_norm || m.attention().sinks || m.head_bias || m.next_token_layers > 0)
    refuse(m, "an arrangement of layers that only few have");
  const bool biases = m.attention().qkv_bias && m.attention().output_bias && m.mlp().bias && m.norm_bias;
  if (m.norm == NormKind::layer_norm) {
    if (m.position != PositionKind::learned || m.mlp().gated || !biases ||
        m.attention().kv_heads != m.attention().heads ||
        m.attention().head_dim * m.attention().heads != m.hidden || m.moe() != nullptr)
      refuse(m, "layer norms with other parts than GPT-2's");
    return WeightFamily::gpt2;
  }
  if (m.attention().rotation().scaling &&
      (m.attention().rotation().scaling->kind == RotaryScalingKind::other ||
       m.attention().rotation().scaling->kind == RotaryScalingKind::yarn))
    refuse(m, "a scaling of rotary positions that is not known here");
  if (m.position != PositionKind::rotary || !m.mlp().gated || m.mlp().bias ||
      m.attention().rotation().fraction != 1.0)
    refuse(m, "rms norms with other parts than Llama's");
  if (m.moe() != nullptr) {
    if (m.moe()->groups_per_token < m.moe()->expert_groups) refuse(m, "a router that is limited to groups");
    if (m.moe()->shared_ffn_hidden > 0 || m.layers.any([](const LayerKind& k) { return !k.moe; }) ||
        m.attention().qkv_bias || m.attention().output_bias ||
        m.attention().query_key_norm != QueryKeyNorm::none)
      refuse(m, "experts arranged other than Mixtral's");
    return WeightFamily::mixtral;
  }
  if (m.attention().query_key_norm == QueryKeyNorm::full) refuse(m, "norms over all queries and keys");
  if (m.attention().query_key_norm == QueryKeyNorm::per_head) return WeightFamily::qwen3;
  return m.attention().qkv_bias && !m.attention().output_bias ? WeightFamily::qwen2 : WeightFamily::llama;
}

class TensorList {
 public:
  void add(const std::string& source, const std::string& name, int64_t rows, int64_t columns = 1,
           bool transposed = false, int64_t row = 0) {
    list_.push_back({source, name, row, rows, columns, transposed});
  }
  std::vector<HuggingFaceTensor> take() { return std::move(list_); }

 private:
  std::vector<HuggingFaceTensor> list_;
};

void add_gpt2_layer(TensorList& list, const ModelSpec& m, int64_t layer) {
  const std::string from = fmt::format("transformer.h.{}.", layer), to = fmt::format("layers.{}.", layer);
  const auto norm = [&](const char* source, const char* name) {
    list.add(from + source + ".weight", to + name + ".scale", m.hidden);
    list.add(from + source + ".bias", to + name + ".bias", m.hidden);
  };
  const auto linear = [&](const char* source, const char* name, int64_t rows, int64_t columns) {
    list.add(from + source + ".weight", to + name + ".weight", rows, columns, true);
    list.add(from + source + ".bias", to + name + ".bias", rows);
  };
  norm("ln_1", "attention.norm");
  linear("attn.c_attn", "attention.qkv", 3 * m.hidden, m.hidden);
  linear("attn.c_proj", "attention.output", m.hidden, m.hidden);
  norm("ln_2", "mlp.norm");
  linear("mlp.c_fc", "mlp.up", m.mlp().ffn_hidden, m.hidden);
  linear("mlp.c_proj", "mlp.down", m.hidden, m.mlp().ffn_hidden);
}

void add_experts(TensorList& list, const ModelSpec& m, const std::string& from, const std::string& to) {
  const int64_t width = m.moe()->expert.ffn_hidden;
  list.add(from + "block_sparse_moe.gate.weight", to + "mlp.router.weight", m.moe()->experts, m.hidden);
  for (int64_t e = 0; e < m.moe()->experts; ++e) {
    const std::string expert = from + fmt::format("block_sparse_moe.experts.{}.", e);
    // w1 is the gate, w3 what it multiplies.
    list.add(expert + "w1.weight", to + "mlp.experts.up.weight", width, m.hidden, false, 2 * e * width);
    list.add(expert + "w3.weight", to + "mlp.experts.up.weight", width, m.hidden, false, (2 * e + 1) * width);
    list.add(expert + "w2.weight", to + "mlp.experts.down.weight", m.hidden, width, false, e * m.hidden);
  }
}

void add_llama_layer(TensorList& list, const ModelSpec& m, int64_t layer) {
  const std::string from = fmt::format("model.layers.{}.", layer), to = fmt::format("layers.{}.", layer);
  const int64_t queries = m.attention().heads * m.attention().head_dim,
                keys = m.attention().kv_heads * m.attention().head_dim;
  list.add(from + "input_layernorm.weight", to + "attention.norm.scale", m.hidden);
  const auto projection = [&](const char* source, int64_t row, int64_t rows) {
    list.add(from + source + ".weight", to + "attention.qkv.weight", rows, m.hidden, false, row);
    if (m.attention().qkv_bias)
      list.add(from + source + ".bias", to + "attention.qkv.bias", rows, 1, false, row);
  };
  projection("self_attn.q_proj", 0, queries);
  projection("self_attn.k_proj", queries, keys);
  projection("self_attn.v_proj", queries + keys, keys);
  if (m.attention().query_key_norm == QueryKeyNorm::per_head) {
    list.add(from + "self_attn.q_norm.weight", to + "attention.query_norm.scale", m.attention().head_dim);
    list.add(from + "self_attn.k_norm.weight", to + "attention.key_norm.scale", m.attention().head_dim);
  }
  list.add(from + "self_attn.o_proj.weight", to + "attention.output.weight", m.hidden, queries);
  if (m.attention().output_bias)
    list.add(from + "self_attn.o_proj.bias", to + "attention.output.bias", m.hidden);
  list.add(from + "post_attention_layernorm.weight", to + "mlp.norm.scale", m.hidden);
  if (m.moe() != nullptr) return add_experts(list, m, from, to);
  list.add(from + "mlp.gate_proj.weight", to + "mlp.up.weight", m.mlp().ffn_hidden, m.hidden);
  list.add(from + "mlp.up_proj.weight", to + "mlp.up.weight", m.mlp().ffn_hidden, m.hidden, false,
           m.mlp().ffn_hidden);
  list.add(from + "mlp.down_proj.weight", to + "mlp.down.weight", m.hidden, m.mlp().ffn_hidden);
}

std::string activation_name(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::gelu:
      return "gelu";
    case ActivationKind::gelu_tanh:
      return "gelu_new";
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

Json gpt2_config(const ModelSpec& m) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"activation_function", activation_name(m.mlp().activation)},
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
  if (s.kind != RotaryScalingKind::llama3) return scaling;
  scaling["low_freq_factor"] = s.low_frequency_factor;
  scaling["high_freq_factor"] = s.high_frequency_factor;
  scaling["original_max_position_embeddings"] = s.original_positions;
  return scaling;
}

Json llama_config(const ModelSpec& m, WeightFamily family) {
  const std::map<WeightFamily, std::pair<const char*, const char*>> names{
      {WeightFamily::llama, {"LlamaForCausalLM", "llama"}},
      {WeightFamily::qwen2, {"Qwen2ForCausalLM", "qwen2"}},
      {WeightFamily::qwen3, {"Qwen3ForCausalLM", "qwen3"}},
      {WeightFamily::mixtral, {"MixtralForCausalLM", "mixtral"}}};
  const auto& [architecture, type] = names.at(family);
  Json config{{"architectures", {architecture}},
              {"model_type", type},
              {"hidden_act", activation_name(m.mlp().activation)},
              {"head_dim", m.attention().head_dim},
              {"hidden_size", m.hidden},
              {"intermediate_size", m.moe() != nullptr ? m.moe()->expert.ffn_hidden : m.mlp().ffn_hidden},
              {"max_position_embeddings", m.max_positions},
              {"num_attention_heads", m.attention().heads},
              {"num_hidden_layers", m.layers.count()},
              {"num_key_value_heads", m.attention().kv_heads},
              {"rms_norm_eps", m.norm_epsilon},
              {"rope_theta", m.attention().rotation().base},
              {"tie_word_embeddings", m.tied_embeddings},
              {"vocab_size", m.vocab}};
  if (family == WeightFamily::llama || family == WeightFamily::qwen3)
    config["attention_bias"] = m.attention().qkv_bias;
  if (family == WeightFamily::llama) config["mlp_bias"] = false;
  if (family == WeightFamily::mixtral) {
    config["num_local_experts"] = m.moe()->experts;
    config["num_experts_per_tok"] = m.moe()->experts_per_token;
  }
  if (family == WeightFamily::mixtral) config["router_aux_loss_coef"] = m.moe()->balance_loss;
  if (m.attention().window) config["sliding_window"] = *m.attention().window;
  if (m.attention().rotation().scaling)
    config["rope_scaling"] = rope_scaling(*m.attention().rotation().scaling);
  return config;
}

}  // namespace

std::vector<HuggingFaceTensor> hugging_face_tensors(const ModelSpec& m) {
  const bool gpt2 = family_of(m) == WeightFamily::gpt2;
  TensorList list;
  list.add(gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight", "embedding.weight", m.vocab,
           m.hidden);
  if (gpt2) list.add("transformer.wpe.weight", "positions.weight", m.max_positions, m.hidden);
  for (int64_t layer = 0; layer < m.layers.count(); ++layer)
    gpt2 ? add_gpt2_layer(list, m, layer) : add_llama_layer(list, m, layer);
  list.add(gpt2 ? "transformer.ln_f.weight" : "model.norm.weight", "head.norm.scale", m.hidden);
  if (gpt2) list.add("transformer.ln_f.bias", "head.norm.bias", m.hidden);
  if (!m.tied_embeddings) list.add("lm_head.weight", "head.weight", m.vocab, m.hidden);
  return list.take();
}

std::string hugging_face_config(const ModelSpec& m) {
  const WeightFamily family = family_of(m);
  return (family == WeightFamily::gpt2 ? gpt2_config(m) : llama_config(m, family)).dump(2) + "\n";
}

}  // namespace mpt::models
