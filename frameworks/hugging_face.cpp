// SPDX-License-Identifier: Apache-2.0
#include "frameworks/hugging_face.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "models/hf_config.h"
#include "models/zoo.h"

namespace mpt::frameworks {
namespace {

bool same_architecture(ModelSpec a, const ModelSpec& b) {
  a.name = b.name;
  a.max_positions = b.max_positions;
  return a == b;
}

const char* activation_name(ActivationKind kind) {
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

Json rotary_parameters(const ModelSpec& m) {
  Json rotary{{"rope_theta", m.attention().rotation().base}, {"rope_type", "default"}};
  if (m.attention().rotation().fraction != 1.0)
    rotary["partial_rotary_factor"] = m.attention().rotation().fraction;
  if (!m.attention().rotation().scaling) return rotary;
  const RotaryScaling& scaling = *m.attention().rotation().scaling;
  rotary["rope_type"] = enum_name(scaling.kind);
  rotary["factor"] = scaling.factor;
  if (scaling.kind == RotaryScalingKind::llama3) {
    rotary["low_freq_factor"] = scaling.low_frequency_factor;
    rotary["high_freq_factor"] = scaling.high_frequency_factor;
    rotary["original_max_position_embeddings"] = scaling.original_positions;
  }
  if (scaling.kind == RotaryScalingKind::yarn) {
    rotary["original_max_position_embeddings"] = scaling.original_positions;
    rotary["beta_fast"] = scaling.beta_fast;
    rotary["beta_slow"] = scaling.beta_slow;
    if (scaling.mscale > 0) rotary["mscale"] = scaling.mscale;
    if (scaling.mscale_all_dim > 0) rotary["mscale_all_dim"] = scaling.mscale_all_dim;
    if (!scaling.whole_dimensions) rotary["truncate"] = false;
  }
  return rotary;
}

Json llama_like(const ModelSpec& m, const char* type, const char* architecture) {
  return Json{{"model_type", type},
              {"architectures", {architecture}},
              {"num_hidden_layers", m.layers.count()},
              {"hidden_size", m.hidden},
              {"intermediate_size", m.mlp().ffn_hidden},
              {"num_attention_heads", m.attention().heads},
              {"num_key_value_heads", m.attention().kv_heads},
              {"head_dim", m.attention().head_dim},
              {"vocab_size", m.vocab},
              {"max_position_embeddings", m.max_positions},
              {"hidden_act", activation_name(m.mlp().activation)},
              {"rms_norm_eps", m.norm_epsilon},
              {"rope_parameters", rotary_parameters(m)},
              {"tie_word_embeddings", m.tied_embeddings}};
}

Json llama(const ModelSpec& m) {
  Json config = llama_like(m, "llama", "LlamaForCausalLM");
  config["attention_bias"] = m.attention().qkv_bias;
  config["mlp_bias"] = m.mlp().bias;
  return config;
}

Json mistral(const ModelSpec& m) {
  Json config = llama_like(m, "mistral", "MistralForCausalLM");
  config["sliding_window"] = m.attention().window ? Json(*m.attention().window) : Json();
  return config;
}

Json qwen2(const ModelSpec& m) { return llama_like(m, "qwen2", "Qwen2ForCausalLM"); }

Json qwen3(const ModelSpec& m) {
  Json config = llama_like(m, "qwen3", "Qwen3ForCausalLM");
  config["attention_bias"] = m.attention().qkv_bias;
  return config;
}

Json mixtral(const ModelSpec& m) {
  Json config = llama_like(m, "mixtral", "MixtralForCausalLM");
  config["sliding_window"] = m.attention().window ? Json(*m.attention().window) : Json();
  if (m.moe() == nullptr) return config;
  config["intermediate_size"] = m.moe()->expert.ffn_hidden;
  config["num_local_experts"] = m.moe()->experts;
  config["num_experts_per_tok"] = m.moe()->experts_per_token;
  config["router_aux_loss_coef"] = m.moe()->balance_loss;
  return config;
}

Json layers_without_experts(const ModelSpec& m) {
  Json layers = Json::array();
  for (int64_t l = 0; l < m.layers.count(); ++l) {
    if (!layer_has_experts(m, l)) layers.push_back(l);
  }
  return layers;
}

Json qwen3_moe(const ModelSpec& m) {
  Json config = llama_like(m, "qwen3_moe", "Qwen3MoeForCausalLM");
  config["attention_bias"] = m.attention().qkv_bias;
  if (m.moe() == nullptr) return config;
  config["num_experts"] = m.moe()->experts;
  config["num_experts_per_tok"] = m.moe()->experts_per_token;
  config["moe_intermediate_size"] = m.moe()->expert.ffn_hidden;
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = layers_without_experts(m);
  config["norm_topk_prob"] = true;
  config["router_aux_loss_coef"] = m.moe()->balance_loss;
  return config;
}

// Windows on every second layer are the class's default.
Json gpt_oss(const ModelSpec& m) {
  Json config = llama_like(m, "gpt_oss", "GptOssForCausalLM");
  config["attention_bias"] = m.attention().qkv_bias;
  config["sliding_window"] = m.attention().window ? Json(*m.attention().window) : Json();
  if (m.moe() == nullptr) return config;
  config["num_local_experts"] = m.moe()->experts;
  config["num_experts_per_tok"] = m.moe()->experts_per_token;
  config["router_aux_loss_coef"] = m.moe()->balance_loss;
  if (const auto limit = m.moe()->expert.activation_limit) config["swiglu_limit"] = *limit;
  return config;
}

Json gpt2(const ModelSpec& m) {
  return Json{{"model_type", "gpt2"},
              {"architectures", {"GPT2LMHeadModel"}},
              {"n_layer", m.layers.count()},
              {"n_embd", m.hidden},
              {"n_inner", m.mlp().ffn_hidden},
              {"n_head", m.attention().heads},
              {"vocab_size", m.vocab},
              {"n_positions", m.max_positions},
              {"activation_function", activation_name(m.mlp().activation)},
              {"layer_norm_epsilon", m.norm_epsilon},
              {"tie_word_embeddings", m.tied_embeddings}};
}

Json gpt_neox(const ModelSpec& m) {
  return Json{{"model_type", "gpt_neox"},
              {"architectures", {"GPTNeoXForCausalLM"}},
              {"num_hidden_layers", m.layers.count()},
              {"hidden_size", m.hidden},
              {"intermediate_size", m.mlp().ffn_hidden},
              {"num_attention_heads", m.attention().heads},
              {"vocab_size", m.vocab},
              {"max_position_embeddings", m.max_positions},
              {"hidden_act", activation_name(m.mlp().activation)},
              {"layer_norm_eps", m.norm_epsilon},
              {"use_parallel_residual", m.parallel_residual},
              {"rope_parameters", rotary_parameters(m)},
              {"rotary_pct", m.attention().rotation().fraction},
              {"attention_bias", m.attention().qkv_bias},
              {"tie_word_embeddings", m.tied_embeddings}};
}

// The classes that a config.json is tried with: the first that reads back as the model is right.
using Family = Json (*)(const ModelSpec&);
constexpr Family kFamilies[] = {llama, qwen2, qwen3, mistral, mixtral, qwen3_moe, gpt_oss, gpt2, gpt_neox};

}  // namespace

std::string hub_id(const ModelSpec& model) {
  for (const models::ZooModel& known : models::zoo_models()) {
    if (!known.aliases.empty() && same_architecture(models::load_model(known.name), model))
      return known.aliases.front();
  }
  return "";
}

std::optional<std::string> hugging_face_config(const ModelSpec& model) {
  for (const Family family : kFamilies) {
    const Json config = family(model);
    try {
      if (same_architecture(models::import_hugging_face(config, "config.json"), model))
        return config.dump(2) + "\n";
    } catch (const UserError&) {
      continue;  // another family's
    }
  }
  return std::nullopt;
}

std::string add_hugging_face_model(const ModelSpec& model, Exported& exported, BalanceLoss balance) {
  // The configurations on the hub leave it out.
  const bool trained =
      balance == BalanceLoss::trained && model.moe() != nullptr && model.moe()->balance_loss > 0.0;
  std::string id = hub_id(model);
  if (trained) {
    if (const auto config = hugging_face_config(model)) {
      Json with_loss = parse_json(*config, "config.json");
      with_loss["output_router_logits"] = true;
      exported.files.push_back({"config.json", with_loss.dump(2) + "\n"});
      return "config.json";
    }
  }
  if (!id.empty()) return id;
  if (const auto config = hugging_face_config(model)) {
    exported.files.push_back({"config.json", *config});
  } else {
    exported.warnings.push_back(
        "no class of transformers that we know has this model: write config.json for your own");
  }
  return "config.json";
}

std::optional<ModelSpec> hugging_face_model(const std::string& reference, const std::filesystem::path& folder,
                                            std::string& unknown) {
  for (const models::ZooModel& known : models::zoo_models()) {
    if (std::find(known.aliases.begin(), known.aliases.end(), reference) != known.aliases.end())
      return models::load_model(known.name);
  }
  std::filesystem::path path = folder / reference;
  std::error_code error;
  if (std::filesystem::is_directory(path, error) || reference.empty()) path /= "config.json";
  if (std::filesystem::is_regular_file(path, error)) return models::load_model(path.string());
  unknown = cut_text(reference, 60);
  return std::nullopt;
}

}  // namespace mpt::frameworks
