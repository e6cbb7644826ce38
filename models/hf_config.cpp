// SPDX-License-Identifier: Apache-2.0
#include "models/hf_config.h"

#include <fmt/ranges.h>

#include <functional>
#include <map>

namespace mpt::models {
namespace {

constexpr double kMaxSize = 1e12;

// Typed access to the keys of a config; collects every problem instead of stopping at the first.
class Config {
 public:
  Config(const Json& json, std::string pointer, JsonProblems& problems)
      : json_(json), pointer_(std::move(pointer)), problems_(problems) {}

  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }

  int64_t size(const char* key) { return number(key, true, 0); }
  int64_t size_or(const char* key, int64_t otherwise) { return number(key, false, otherwise); }

  double real_or(const char* key, double otherwise) {
    if (!has(key)) return otherwise;
    if (json_[key].is_number()) return json_[key].get<double>();
    problems_.add(at(key), detail::describe_json(json_[key]), "a number");
    return otherwise;
  }

  bool flag_or(const char* key, bool otherwise) {
    if (!has(key)) return otherwise;
    if (json_[key].is_boolean()) return json_[key].get<bool>();
    problems_.add(at(key), detail::describe_json(json_[key]), "true or false");
    return otherwise;
  }

  std::string text_or(const char* key, const std::string& otherwise) {
    if (!has(key)) return otherwise;
    if (json_[key].is_string()) return json_[key].get<std::string>();
    problems_.add(at(key), detail::describe_json(json_[key]), "a text");
    return otherwise;
  }

  /// A setting that changes the model in a way ModelSpec cannot say.
  void refuse(const char* key, const std::string& why) {
    problems_.add(at(key), why, "", "this variant cannot be read");
  }

 private:
  std::string at(const char* key) const { return pointer_ + "/" + key; }

  int64_t number(const char* key, bool required, int64_t otherwise) {
    if (!has(key)) {
      if (required) problems_.add(at(key), "missing", "a positive whole number");
      return required ? 1 : otherwise;
    }
    const Json& value = json_[key];
    if (value.is_number_integer() && value.get<double>() >= 0 && value.get<double>() <= kMaxSize)
      return value.get<int64_t>();
    problems_.add(at(key), detail::describe_json(value), "a whole number between 0 and 1e12");
    return 1;
  }

  const Json& json_;
  std::string pointer_;
  JsonProblems& problems_;
};

ActivationKind activation(Config& c, const char* key, const std::string& otherwise) {
  static const std::map<std::string, ActivationKind> kinds{
      {"gelu", ActivationKind::gelu},           {"gelu_new", ActivationKind::gelu_tanh},
      {"gelu_fast", ActivationKind::gelu_tanh}, {"gelu_pytorch_tanh", ActivationKind::gelu_tanh},
      {"gelu_tanh", ActivationKind::gelu_tanh}, {"silu", ActivationKind::silu},
      {"swish", ActivationKind::silu},          {"relu", ActivationKind::relu}};
  const std::string name = c.text_or(key, otherwise);
  const auto found = kinds.find(name);
  if (found != kinds.end()) return found->second;
  c.refuse(key, "unknown activation \"" + name.substr(0, 40) + "\"");
  return ActivationKind::gelu;
}

// What the Llama family and its many relatives share.
ModelSpec llama_like(Config& c) {
  ModelSpec m;
  m.layers = c.size("num_hidden_layers");
  m.hidden = c.size("hidden_size");
  m.vocab = c.size("vocab_size");
  m.max_positions = c.size_or("max_position_embeddings", 2048);
  m.heads = std::max<int64_t>(1, c.size("num_attention_heads"));
  m.kv_heads = std::max<int64_t>(1, c.size_or("num_key_value_heads", m.heads));
  m.head_dim = c.size_or("head_dim", m.hidden / m.heads);
  m.ffn_hidden = c.size("intermediate_size");
  m.norm = NormKind::rms_norm;
  m.norm_epsilon = c.real_or("rms_norm_eps", 1e-6);
  m.position = PositionKind::rotary;
  m.rotary_base = c.real_or("rope_theta", 10000.0);
  m.rotary_fraction = c.real_or("partial_rotary_factor", 1.0);
  m.gated_mlp = true;
  m.activation = activation(c, "hidden_act", "silu");
  m.tied_embeddings = c.flag_or("tie_word_embeddings", false);
  return m;
}

ModelSpec import_llama(Config& c) {
  ModelSpec m = llama_like(c);
  m.qkv_bias = m.attention_output_bias = c.flag_or("attention_bias", false);
  m.mlp_bias = c.flag_or("mlp_bias", false);
  return m;
}

ModelSpec import_mistral(Config& c) {
  ModelSpec m = llama_like(c);
  m.kv_heads = c.size_or("num_key_value_heads", 8);
  if (c.has("sliding_window")) m.sliding_window = c.size("sliding_window");
  return m;
}

ModelSpec import_mixtral(Config& c) {
  ModelSpec m = import_mistral(c);
  m.moe =
      MixtureOfExperts{c.size_or("num_local_experts", 8), c.size_or("num_experts_per_tok", 2), m.ffn_hidden};
  return m;
}

ModelSpec import_qwen2(Config& c) {
  ModelSpec m = llama_like(c);
  m.qkv_bias = true;  // the class has biases on q, k and v, always
  if (c.flag_or("use_sliding_window", false) && c.has("sliding_window"))
    m.sliding_window = c.size("sliding_window");
  return m;
}

MixtureOfExperts qwen_experts(Config& c) {
  MixtureOfExperts moe{c.size("num_experts"), c.size("num_experts_per_tok"), c.size("moe_intermediate_size")};
  moe.layer_interval = std::max<int64_t>(1, c.size_or("decoder_sparse_step", 1));
  return moe;
}

ModelSpec import_qwen2_moe(Config& c) {
  ModelSpec m = import_qwen2(c);
  m.moe = qwen_experts(c);
  m.moe->shared_ffn_hidden = c.size("shared_expert_intermediate_size");
  m.moe->shared_gate = true;
  return m;
}

ModelSpec import_qwen3(Config& c) {
  ModelSpec m = import_llama(c);
  m.head_dim = c.size_or("head_dim", 128);
  m.query_key_norm = QueryKeyNorm::per_head;
  return m;
}

ModelSpec import_qwen3_moe(Config& c) {
  ModelSpec m = import_qwen3(c);
  m.moe = qwen_experts(c);
  return m;
}

ModelSpec import_gemma(Config& c) {
  ModelSpec m = llama_like(c);
  m.head_dim = c.size_or("head_dim", 256);
  m.tied_embeddings = c.flag_or("tie_word_embeddings", true);
  m.activation =
      activation(c, c.has("hidden_activation") ? "hidden_activation" : "hidden_act", "gelu_pytorch_tanh");
  return m;
}

ModelSpec import_gemma2(Config& c) {
  ModelSpec m = import_gemma(c);
  m.norm_placement = NormPlacement::sandwich;
  m.sliding_window = c.size_or("sliding_window", 4096);
  m.sliding_window_interval = 2;
  return m;
}

ModelSpec import_phi3(Config& c) {
  ModelSpec m = llama_like(c);
  if (c.has("sliding_window")) m.sliding_window = c.size("sliding_window");
  return m;
}

ModelSpec import_deepseek(Config& c) {
  ModelSpec m = llama_like(c);
  m.attention = AttentionKind::latent;
  m.qkv_bias = m.attention_output_bias = c.flag_or("attention_bias", false);
  m.latent = LatentAttention{c.size_or("q_lora_rank", 0), c.size("kv_lora_rank"), c.size("qk_nope_head_dim"),
                             c.size("qk_rope_head_dim"), c.size("v_head_dim")};
  m.head_dim = m.latent->nope_head_dim + m.latent->rope_head_dim;
  MixtureOfExperts moe{c.size("n_routed_experts"), c.size("num_experts_per_tok"),
                       c.size("moe_intermediate_size")};
  moe.shared_ffn_hidden = c.size_or("n_shared_experts", 0) * moe.expert_ffn_hidden;
  moe.leading_dense_layers = c.size_or("first_k_dense_replace", 0);
  moe.layer_interval = std::max<int64_t>(1, c.size_or("moe_layer_freq", 1));
  m.moe = moe;
  return m;
}

ModelSpec import_deepseek_v3(Config& c) {
  ModelSpec m = import_deepseek(c);
  m.moe->router_bias = true;  // the score-correction bias of auxiliary-loss-free balancing (arXiv:2412.19437)
  m.next_token_layers = c.size_or("num_nextn_predict_layers", 0);
  return m;
}

ModelSpec import_gpt_oss(Config& c) {
  ModelSpec m = llama_like(c);
  m.head_dim = c.size_or("head_dim", 64);
  m.qkv_bias = m.attention_output_bias = c.flag_or("attention_bias", true);
  m.attention_sinks = true;
  m.sliding_window = c.size_or("sliding_window", 128);
  m.sliding_window_interval = 2;
  m.mlp_bias = true;
  m.moe = MixtureOfExperts{c.size("num_local_experts"), c.size_or("num_experts_per_tok", 4), m.ffn_hidden};
  m.moe->router_bias = true;
  return m;
}

// GPT-2 names its keys differently and fixes what others make a choice.
ModelSpec import_gpt2(Config& c) {
  ModelSpec m;
  m.layers = c.size("n_layer");
  m.hidden = c.size("n_embd");
  m.vocab = c.size("vocab_size");
  m.max_positions = c.size_or("n_positions", 1024);
  m.heads = m.kv_heads = std::max<int64_t>(1, c.size("n_head"));
  m.head_dim = m.hidden / m.heads;
  m.ffn_hidden = c.size_or("n_inner", 4 * m.hidden);
  m.norm_epsilon = c.real_or("layer_norm_epsilon", 1e-5);
  m.qkv_bias = m.attention_output_bias = m.mlp_bias = true;
  m.activation = activation(c, "activation_function", "gelu_new");
  m.tied_embeddings = c.flag_or("tie_word_embeddings", true);
  return m;
}

ModelSpec import_gpt_neox(Config& c) {
  ModelSpec m;
  m.layers = c.size("num_hidden_layers");
  m.hidden = c.size("hidden_size");
  m.vocab = c.size("vocab_size");
  m.max_positions = c.size_or("max_position_embeddings", 2048);
  m.heads = m.kv_heads = std::max<int64_t>(1, c.size("num_attention_heads"));
  m.head_dim = m.hidden / m.heads;
  m.ffn_hidden = c.size("intermediate_size");
  m.norm_epsilon = c.real_or("layer_norm_eps", 1e-5);
  m.parallel_residual = c.flag_or("use_parallel_residual", true);
  m.position = PositionKind::rotary;
  m.rotary_base = c.real_or("rotary_emb_base", 10000.0);
  m.rotary_fraction = c.real_or("rotary_pct", 0.25);
  m.qkv_bias = m.attention_output_bias = c.flag_or("attention_bias", true);
  m.mlp_bias = true;
  m.activation = activation(c, "hidden_act", "gelu");
  m.tied_embeddings = c.flag_or("tie_word_embeddings", false);
  return m;
}

ModelSpec import_opt(Config& c) {
  ModelSpec m;
  m.layers = c.size("num_hidden_layers");
  m.hidden = c.size("hidden_size");
  m.vocab = c.size("vocab_size");
  m.max_positions = c.size_or("max_position_embeddings", 2048) + 2;  // the class adds two rows for its offset
  m.heads = m.kv_heads = std::max<int64_t>(1, c.size("num_attention_heads"));
  m.head_dim = m.hidden / m.heads;
  m.ffn_hidden = c.size("ffn_dim");
  m.qkv_bias = m.attention_output_bias = m.mlp_bias = c.flag_or("enable_bias", true);
  m.activation = activation(c, "activation_function", "relu");
  m.tied_embeddings = c.flag_or("tie_word_embeddings", true);
  if (!c.flag_or("do_layer_norm_before", true))
    c.refuse("do_layer_norm_before", "norms behind the residual (OPT-350m)");
  if (c.size_or("word_embed_proj_dim", m.hidden) != m.hidden)
    c.refuse("word_embed_proj_dim", "a projected embedding (OPT-350m)");
  return m;
}

ModelSpec import_bloom(Config& c) {
  ModelSpec m;
  m.layers = c.size(c.has("n_layer") ? "n_layer" : "num_hidden_layers");
  m.hidden = c.size(c.has("n_embed") ? "n_embed" : "hidden_size");
  m.vocab = c.size("vocab_size");
  m.max_positions = c.size_or("seq_length", 2048);
  m.heads = m.kv_heads = std::max<int64_t>(1, c.size(c.has("n_head") ? "n_head" : "num_attention_heads"));
  m.head_dim = m.hidden / m.heads;
  m.ffn_hidden = 4 * m.hidden;
  m.norm_epsilon = c.real_or("layer_norm_epsilon", 1e-5);
  m.embedding_norm = true;
  m.position = PositionKind::alibi;
  m.qkv_bias = m.attention_output_bias = m.mlp_bias = true;
  m.tied_embeddings = c.flag_or("tie_word_embeddings", true);
  return m;
}

ModelSpec import_falcon(Config& c) {
  ModelSpec m;
  const bool new_architecture = c.flag_or("new_decoder_architecture", false);
  m.layers = c.size(c.has("n_layer") ? "n_layer" : "num_hidden_layers");
  m.hidden = c.size("hidden_size");
  m.vocab = c.size("vocab_size");
  m.max_positions = c.size_or("max_position_embeddings", 2048);
  m.heads = std::max<int64_t>(1, c.size(c.has("n_head") ? "n_head" : "num_attention_heads"));
  const int64_t groups = c.size_or(c.has("n_head_kv") ? "n_head_kv" : "num_kv_heads", m.heads);
  m.kv_heads = new_architecture ? groups : c.flag_or("multi_query", true) ? 1 : m.heads;
  m.head_dim = m.hidden / m.heads;
  m.ffn_hidden = c.size_or("ffn_hidden_size", 4 * m.hidden);
  m.norm_epsilon = c.real_or("layer_norm_epsilon", 1e-5);
  m.parallel_residual = new_architecture || c.flag_or("parallel_attn", true);
  const int64_t norms = c.size_or("num_ln_in_parallel_attn", new_architecture ? 2 : 1);
  if (m.parallel_residual && norms == 1) m.norm_placement = NormPlacement::shared;
  m.position = c.flag_or("alibi", false) ? PositionKind::alibi : PositionKind::rotary;
  m.rotary_base = c.real_or("rope_theta", 10000.0);
  m.qkv_bias = m.attention_output_bias = m.mlp_bias = c.flag_or("bias", false);
  m.activation = activation(c, "activation", "gelu");
  m.tied_embeddings = c.flag_or("tie_word_embeddings", true);
  return m;
}

using Importer = ModelSpec (*)(Config&);

const std::map<std::string, Importer>& importers() {
  static const std::map<std::string, Importer> table{{"bloom", import_bloom},
                                                     {"deepseek_v2", import_deepseek},
                                                     {"deepseek_v3", import_deepseek_v3},
                                                     {"falcon", import_falcon},
                                                     {"gemma", import_gemma},
                                                     {"gemma2", import_gemma2},
                                                     {"gpt2", import_gpt2},
                                                     {"gpt_neox", import_gpt_neox},
                                                     {"gpt_oss", import_gpt_oss},
                                                     {"kimi_k2", import_deepseek_v3},
                                                     {"llama", import_llama},
                                                     {"mistral", import_mistral},
                                                     {"mixtral", import_mixtral},
                                                     {"opt", import_opt},
                                                     {"phi3", import_phi3},
                                                     {"qwen2", import_qwen2},
                                                     {"qwen2_moe", import_qwen2_moe},
                                                     {"qwen3", import_qwen3},
                                                     {"qwen3_moe", import_qwen3_moe},
                                                     {"qwen2_vl_text", import_qwen2},
                                                     {"qwen3_vl_text", import_qwen3},
                                                     {"qwen3_vl_moe_text", import_qwen3_moe}};
  return table;
}

// The name a person knows: the last part of _name_or_path, or the folder, or the type.
std::string model_name(const Json& config, const std::string& file, const std::string& type) {
  const auto found = config.find("_name_or_path");
  std::string name = found != config.end() && found->is_string() ? found->get<std::string>() : "";
  if (name.empty()) name = std::filesystem::path(file).stem().string();
  if (name == "config") name = std::filesystem::path(file).parent_path().filename().string();
  name = name.substr(name.rfind('/') + 1).substr(0, 80);
  return name.empty() ? type : name;
}

}  // namespace

std::vector<std::string> hugging_face_types() {
  std::vector<std::string> types;
  for (const auto& [type, importer] : importers()) types.push_back(type);
  return types;
}

ModelSpec import_hugging_face(const Json& config, const std::string& file) {
  if (!config.is_object()) throw UserError(Problem{file, "not an object", "a Hugging Face config.json", ""});
  const bool nested = config.contains("text_config") && config["text_config"].is_object();
  const Json& text = nested ? config["text_config"] : config;
  const std::string pointer = nested ? "/text_config" : "";
  const auto found = text.find("model_type");
  const std::string type = found != text.end() && found->is_string() ? found->get<std::string>() : "";
  const auto importer = importers().find(type);
  if (importer == importers().end()) {
    throw UserError(Problem{file + " at " + pointer + "/model_type",
                            type.empty() ? "missing"
                                         : fmt::format("unknown type \"{}\"{}", type.substr(0, 80),
                                                       did_you_mean(type, hugging_face_types())),
                            fmt::format("one of {}", fmt::join(hugging_face_types(), ", ")),
                            "describe the model in our own format instead (docs/file_formats.md)"});
  }
  JsonProblems problems(file);
  Config reader(text, pointer, problems);
  ModelSpec model = importer->second(reader);
  problems.throw_if_any();
  model.name = model_name(config, file, type);
  // Through our own reader once, so that ranges are checked in one place.
  model = from_json<ModelSpec>(to_json(model), file);
  validate_model(model, file);
  return model;
}

}  // namespace mpt::models
