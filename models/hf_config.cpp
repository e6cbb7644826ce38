// SPDX-License-Identifier: Apache-2.0
#include "models/hf_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/json.h"
#include "models/hf_keys.h"

namespace mpt::models {
namespace {

ActivationKind activation(Config& c, const char* key, const std::string& otherwise) {
  static const std::map<std::string, ActivationKind> kinds{
      {"gelu", ActivationKind::gelu},           {"gelu_new", ActivationKind::gelu_tanh},
      {"gelu_fast", ActivationKind::gelu_tanh}, {"gelu_pytorch_tanh", ActivationKind::gelu_tanh},
      {"gelu_tanh", ActivationKind::gelu_tanh}, {"silu", ActivationKind::silu},
      {"swish", ActivationKind::silu},          {"relu", ActivationKind::relu},
      {"relu2", ActivationKind::squared_relu}};
  const std::string name = c.text_or(key, otherwise);
  const auto found = kinds.find(name);
  if (found != kinds.end()) return found->second;
  c.refuse(key, "unknown activation \"" + name.substr(0, 40) + "\"");
  return ActivationKind::gelu;
}

// A model whose layers are not listed yet.
struct Draft : ModelSpec {
  int64_t layer_count = 0;
  Attention attention;  // of a layer with the window, if there is one
  Mlp mlp;
  std::optional<MixtureOfExperts> moe;
  Rotary rotary;
  int64_t window_interval = 1;  // the first of every n layers has the window
  int64_t leading_dense_layers = 0, expert_interval = 1;
};

// What a family's configuration class takes where a key is absent.
struct ClassDefaults {
  int64_t max_positions = 2048;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // 0: hidden / heads
  double norm_epsilon = 1e-6;
  double rotary_base = 10000.0;
};

// hidden / heads; the classes too refuse what does not divide.
int64_t head_share(Config& c, const Draft& m, const char* hidden_key) {
  if (!c.failed() && m.hidden % m.attention.heads != 0) {
    c.add(hidden_key, fmt::format("width {} for {} heads", m.hidden, m.attention.heads),
          "a multiple of the heads");
  }
  return std::max<int64_t>(1, m.hidden / m.attention.heads);
}

// Files since transformers 5 hold rotary settings in "rope_parameters".
double rotary_setting(Config& c, const char* key, double otherwise) {
  return c.real_or(key, c.inner("rope_parameters").real_or(key, otherwise));
}

void set_window(Config& c, Draft& m, std::optional<int64_t> class_default) {
  if (c.has("sliding_window")) {
    m.attention.window = c.size("sliding_window");
  } else if (c.absent("sliding_window")) {
    m.attention.window = class_default;
  }
}

// Newer files name the kind of every layer, which then decides.
void check_layer_types(Config& c, Draft& m) {
  const Json* types = c.list("layer_types");
  if (types == nullptr) return;
  std::vector<bool> windowed;
  for (const Json& type : *types) {
    if (type != "sliding_attention" && type != "full_attention")
      return c.refuse("layer_types", "a layer of kind " + detail::describe_json(type));
    windowed.push_back(type == "sliding_attention");
  }
  if (int64_t(windowed.size()) != m.layer_count)
    return c.add("layer_types", fmt::format("{} entries for {} layers", windowed.size(), m.layer_count),
                 "one per layer");
  const int64_t windows = std::count(windowed.begin(), windowed.end(), true);
  if (windows == 0) m.attention.window.reset();
  if (windows == 0 || windows == m.layer_count) m.window_interval = 1;
  for (int64_t layer = 0; layer < m.layer_count; ++layer) {
    const bool described = m.attention.window && layer % m.window_interval == 0;
    if (windowed[size_t(layer)] != described)
      return c.refuse("layer_types",
                      fmt::format("the order of windowed and full layers, from layer {}", layer));
  }
}

// "rope_scaling", or since transformers 5 the same keys in "rope_parameters".
void set_rotary_scaling(Config& c, Draft& m) {
  Config scaling = c.inner(c.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
  const std::string type = scaling.text_or("rope_type", scaling.text_or("type", "default"));
  if (type == "default") return;
  RotaryScaling s;
  const bool yarn = type == "yarn" && scaling.absent("attention_factor");
  s.kind = type == "linear"   ? RotaryScalingKind::linear
           : type == "llama3" ? RotaryScalingKind::llama3
           : yarn             ? RotaryScalingKind::yarn
                              : RotaryScalingKind::other;
  s.factor = scaling.real_or("factor", 1.0);
  if (s.kind == RotaryScalingKind::llama3) {
    s.low_frequency_factor = scaling.real_or("low_freq_factor", 1.0);
    s.high_frequency_factor = scaling.real_or("high_freq_factor", 4.0);
    s.original_positions = scaling.size_or("original_max_position_embeddings", 8192);
  }
  if (yarn) {  // transformers/modeling_rope_utils.py, _compute_yarn_parameters
    s.original_positions = scaling.size_or("original_max_position_embeddings", m.max_positions);
    s.beta_fast = scaling.real_or("beta_fast", 32.0);
    s.beta_slow = scaling.real_or("beta_slow", 1.0);
    s.mscale = scaling.real_or("mscale", 0.0);
    s.mscale_all_dim = scaling.real_or("mscale_all_dim", 0.0);
    s.whole_dimensions = scaling.flag_or("truncate", true);
  }
  m.rotary.scaling = s;
}

// What the Llama family and its many relatives share.
Draft llama_like(Config& c, const ClassDefaults& absent) {
  Draft m;
  m.layer_count = c.size("num_hidden_layers");
  m.hidden = c.size("hidden_size");
  m.vocab = c.size("vocab_size");
  m.max_positions = c.size_or("max_position_embeddings", absent.max_positions);
  m.attention.heads = c.size("num_attention_heads");
  const bool class_heads = c.absent("num_key_value_heads") && absent.kv_heads > 0;
  m.attention.kv_heads = class_heads ? absent.kv_heads : c.size_or("num_key_value_heads", m.attention.heads);
  const bool class_dim = c.absent("head_dim") && absent.head_dim > 0;
  m.attention.head_dim = class_dim           ? absent.head_dim
                         : c.has("head_dim") ? c.size("head_dim")
                                             : head_share(c, m, "hidden_size");
  m.mlp.ffn_hidden = c.size("intermediate_size");
  m.norm = NormKind::rms_norm;
  m.norm_epsilon = c.real_or("rms_norm_eps", absent.norm_epsilon);
  m.position = PositionKind::rotary;
  m.rotary.base = rotary_setting(c, "rope_theta", absent.rotary_base);
  m.rotary.fraction = rotary_setting(c, "partial_rotary_factor", 1.0);
  set_rotary_scaling(c, m);
  m.mlp.gated = true;
  m.mlp.activation = activation(c, "hidden_act", "silu");
  m.tied_embeddings = c.flag_or("tie_word_embeddings", false);
  return m;
}

Draft import_llama(Config& c) {
  Draft m = llama_like(c, {});
  m.attention.qkv_bias = m.attention.output_bias = c.flag_or("attention_bias", false);
  m.mlp.bias = c.flag_or("mlp_bias", false);
  return m;
}

Draft import_mistral(Config& c) {
  Draft m = llama_like(c, {.max_positions = 131072, .kv_heads = 8});
  set_window(c, m, 4096);
  return m;
}

Draft import_mixtral(Config& c) {
  ModelSpec m =
      llama_like(c, {.max_positions = 131072, .kv_heads = 8, .norm_epsilon = 1e-5, .rotary_base = 1e6});
  set_window(c, m, std::nullopt);
  m.moe = MixtureOfExperts{c.size_or("num_local_experts", 8), c.size_or("num_experts_per_tok", 2),
                           Mlp{m.mlp.ffn_hidden}};
  m.moe->balance_loss = c.real_or("router_aux_loss_coef", 0.001);
  return m;
}

// With use_sliding_window the layers from max_window_layers on have the window.
void set_qwen_window(Config& c, Draft& m) {
  if (!c.flag_or("use_sliding_window", false)) return;
  const int64_t full_layers = c.count_or("max_window_layers", 28);
  if (full_layers >= m.layer_count) return;
  if (full_layers > 0) c.refuse("max_window_layers", "a window in the last layers only");
  set_window(c, m, 4096);
}

Draft qwen2_like(Config& c, int64_t class_kv_heads) {
  Draft m = llama_like(c, {.max_positions = 32768, .kv_heads = class_kv_heads});
  m.attention.qkv_bias = true;  // the class has biases on q, k and v, always
  return m;
}

Draft import_qwen2(Config& c) {
  Draft m = qwen2_like(c, 32);
  set_qwen_window(c, m);
  return m;
}

MixtureOfExperts qwen_experts(Config& c) {
  MixtureOfExperts moe{c.size(c.has("num_local_experts") ? "num_local_experts" : "num_experts"),
                       c.size("num_experts_per_tok"), Mlp{c.size("moe_intermediate_size")}};
  const Json* dense = c.list("mlp_only_layers");
  if (dense != nullptr && !dense->empty()) c.refuse("mlp_only_layers", "single layers without experts");
  return moe;
}

Draft import_qwen2_moe(Config& c) {
  Draft m = qwen2_like(c, 16);
  m.attention.qkv_bias = c.flag_or("qkv_bias", true);
  if (c.flag_or("use_sliding_window", false))
    c.refuse("use_sliding_window", "a window whose layers differ between versions of the class");
  m.moe = qwen_experts(c);
  m.expert_interval = c.size_or("decoder_sparse_step", 1);
  m.moe->shared_ffn_hidden = c.size("shared_expert_intermediate_size");
  m.moe->shared_gate = true;
  return m;
}

Draft qwen3_like(Config& c, const ClassDefaults& absent) {
  Draft m = llama_like(c, absent);
  m.attention.qkv_bias = m.attention.output_bias = c.flag_or("attention_bias", false);
  m.attention.query_key_norm = QueryKeyNorm::per_head;
  set_qwen_window(c, m);
  return m;
}

Draft import_qwen3(Config& c) {
  return qwen3_like(c, {.max_positions = 32768, .kv_heads = 32, .head_dim = 128});
}

Draft import_qwen3_moe(Config& c) {
  Draft m = qwen3_like(c, {.max_positions = 32768, .kv_heads = 4});
  m.moe = qwen_experts(c);
  m.expert_interval = c.size_or("decoder_sparse_step", 1);
  return m;
}

Draft gemma_like(Config& c, int64_t class_kv_heads) {
  Draft m = llama_like(c, {.max_positions = 8192, .kv_heads = class_kv_heads, .head_dim = 256});
  m.attention.qkv_bias = m.attention.output_bias = c.flag_or("attention_bias", false);
  m.tied_embeddings = c.flag_or("tie_word_embeddings", true);
  m.mlp.activation =
      activation(c, c.has("hidden_activation") ? "hidden_activation" : "hidden_act", "gelu_pytorch_tanh");
  // The first files say "hidden_act": "gelu" of models trained with the tanh form; the classes correct it.
  if (!c.has("hidden_activation") && m.mlp.activation == ActivationKind::gelu)
    m.mlp.activation = ActivationKind::gelu_tanh;
  return m;
}

Draft import_gemma(Config& c) { return gemma_like(c, 16); }

Draft import_gemma2(Config& c) {
  Draft m = gemma_like(c, 4);
  m.norm_placement = NormPlacement::sandwich;
  set_window(c, m, 4096);
  m.window_interval = 2;
  return m;
}

Draft import_phi3(Config& c) {
  Draft m = llama_like(c, {.max_positions = 4096, .norm_epsilon = 1e-5});
  set_window(c, m, std::nullopt);
  return m;
}

Draft deepseek_like(Config& c, int64_t class_max_positions, int64_t class_dense_layers) {
  Draft m = llama_like(c, {.max_positions = class_max_positions});
  m.attention.kv_heads = m.attention.heads;  // the compressed keys and values are expanded for every head
  m.attention.qkv_bias = m.attention.output_bias = c.flag_or("attention_bias", false);
  const int64_t query_rank = c.absent("q_lora_rank") ? 1536 : c.count_or("q_lora_rank", 0);
  m.attention.latent = LatentAttention{query_rank, c.size("kv_lora_rank"), c.size("qk_nope_head_dim"),
                                       c.size("qk_rope_head_dim"), c.size("v_head_dim")};
  m.attention.head_dim = m.attention.latent->nope_head_dim + m.attention.latent->rope_head_dim;
  MixtureOfExperts moe{c.size("n_routed_experts"), c.size("num_experts_per_tok"),
                       Mlp{c.size("moe_intermediate_size")}};
  // Old and new classes differ in the default: the file must say it, if only as null.
  if (c.absent("n_shared_experts")) c.add("n_shared_experts", "missing", "a whole number or null");
  moe.shared_ffn_hidden = c.count_or("n_shared_experts", 0) * moe.expert.ffn_hidden;
  m.leading_dense_layers = c.count_or("first_k_dense_replace", class_dense_layers);
  if (c.size_or("moe_layer_freq", 1) != 1) c.refuse("moe_layer_freq", "experts in some layers only");
  m.moe = moe;
  return m;
}

void set_groups(Config& c, MixtureOfExperts& moe, int64_t groups, int64_t of_token) {
  moe.expert_groups = c.size_or("n_group", groups);
  moe.groups_per_token = c.size_or("topk_group", of_token);
}

Draft import_deepseek_v2(Config& c) {
  Draft m = deepseek_like(c, 2048, 0);
  if (c.text_or("topk_method", "greedy") != "greedy") set_groups(c, *m.moe, 1, 1);
  return m;
}

Draft import_deepseek_v3(Config& c) {
  Draft m = deepseek_like(c, 4096, 3);
  set_groups(c, *m.moe, 8, 4);
  m.moe->router_bias = true;  // the score-correction bias of auxiliary-loss-free balancing (arXiv:2412.19437)
  m.next_token_layers = c.count_or("num_nextn_predict_layers", 0);
  return m;
}

Draft import_gpt_oss(Config& c) {
  Draft m = llama_like(c, {.max_positions = 131072,
                           .kv_heads = 8,
                           .head_dim = 64,
                           .norm_epsilon = 1e-5,
                           .rotary_base = 150000.0});
  m.attention.qkv_bias = m.attention.output_bias = c.flag_or("attention_bias", true);
  m.attention.sinks = true;
  set_window(c, m, 128);
  m.window_interval = 2;
  m.mlp.bias = true;
  m.mlp.activation_limit = c.real_or("swiglu_limit", 7.0);
  m.moe = MixtureOfExperts{c.size("num_local_experts"), c.size_or("num_experts_per_tok", 4),
                           Mlp{m.mlp.ffn_hidden}};
  m.moe->router_bias = true;
  return m;
}

// GPT-2 names its keys differently and fixes what others make a choice.
Draft import_gpt2(Config& c) {
  Draft m;
  m.layer_count = c.size("n_layer");
  m.hidden = c.size("n_embd");
  m.vocab = c.size("vocab_size");
  m.max_positions = c.size_or("n_positions", 1024);
  m.attention.heads = m.attention.kv_heads = c.size("n_head");
  m.attention.head_dim = head_share(c, m, "n_embd");
  m.mlp.ffn_hidden = c.size_or("n_inner", 4 * m.hidden);
  m.norm_epsilon = c.real_or("layer_norm_epsilon", 1e-5);
  m.attention.qkv_bias = m.attention.output_bias = m.mlp.bias = true;
  m.mlp.activation = activation(c, "activation_function", "gelu_new");
  m.tied_embeddings = c.flag_or("tie_word_embeddings", true);
  return m;
}

Draft import_gpt_neox(Config& c) {
  Draft m;
  m.layer_count = c.size("num_hidden_layers");
  m.hidden = c.size("hidden_size");
  m.vocab = c.size("vocab_size");
  m.max_positions = c.size_or("max_position_embeddings", 2048);
  m.attention.heads = m.attention.kv_heads = c.size("num_attention_heads");
  m.attention.head_dim = head_share(c, m, "hidden_size");
  m.mlp.ffn_hidden = c.size("intermediate_size");
  m.norm_epsilon = c.real_or("layer_norm_eps", 1e-5);
  m.parallel_residual = c.flag_or("use_parallel_residual", true);
  m.position = PositionKind::rotary;
  m.rotary.base = c.real_or("rotary_emb_base", rotary_setting(c, "rope_theta", 10000.0));
  m.rotary.fraction = c.real_or("rotary_pct", rotary_setting(c, "partial_rotary_factor", 0.25));
  m.attention.qkv_bias = m.attention.output_bias = c.flag_or("attention_bias", true);
  m.mlp.bias = true;
  m.mlp.activation = activation(c, "hidden_act", "gelu");
  m.tied_embeddings = c.flag_or("tie_word_embeddings", false);
  return m;
}

Draft import_opt(Config& c) {
  Draft m;
  m.layer_count = c.size("num_hidden_layers");
  m.hidden = c.size("hidden_size");
  m.vocab = c.size("vocab_size");
  m.max_positions = c.size_or("max_position_embeddings", 2048) + 2;  // the class adds two rows for its offset
  m.attention.heads = m.attention.kv_heads = c.size("num_attention_heads");
  m.attention.head_dim = head_share(c, m, "hidden_size");
  m.mlp.ffn_hidden = c.size("ffn_dim");
  m.attention.qkv_bias = m.attention.output_bias = m.mlp.bias = c.flag_or("enable_bias", true);
  m.mlp.activation = activation(c, "activation_function", "relu");
  m.tied_embeddings = c.flag_or("tie_word_embeddings", true);
  if (!c.flag_or("layer_norm_elementwise_affine", true))
    c.refuse("layer_norm_elementwise_affine", "norms without weights");
  if (!c.flag_or("do_layer_norm_before", true))
    c.refuse("do_layer_norm_before", "norms behind the residual (OPT-350m)");
  if (c.size_or("word_embed_proj_dim", m.hidden) != m.hidden)
    c.refuse("word_embed_proj_dim", "a projected embedding (OPT-350m)");
  return m;
}

Draft import_bloom(Config& c) {
  Draft m;
  m.layer_count = c.size(c.has("n_layer") ? "n_layer" : "num_hidden_layers");
  m.hidden = c.size(c.has("n_embed") ? "n_embed" : "hidden_size");
  m.vocab = c.size("vocab_size");
  m.max_positions = c.size_or("seq_length", 2048);
  m.attention.heads = m.attention.kv_heads = c.size(c.has("n_head") ? "n_head" : "num_attention_heads");
  m.attention.head_dim = head_share(c, m, c.has("n_embed") ? "n_embed" : "hidden_size");
  m.mlp.ffn_hidden = 4 * m.hidden;
  m.norm_epsilon = c.real_or("layer_norm_epsilon", 1e-5);
  m.embedding_norm = true;
  m.position = PositionKind::alibi;
  m.attention.qkv_bias = m.attention.output_bias = m.mlp.bias = true;
  m.tied_embeddings = c.flag_or("tie_word_embeddings", true);
  return m;
}

Draft import_falcon(Config& c) {
  Draft m;
  const bool new_architecture = c.flag_or("new_decoder_architecture", false);
  m.layer_count = c.size(c.has("n_layer") ? "n_layer" : "num_hidden_layers");
  m.hidden = c.size("hidden_size");
  m.vocab = c.size("vocab_size");
  m.max_positions = c.size_or("max_position_embeddings", 2048);
  m.attention.heads = c.size(c.has("n_head") ? "n_head" : "num_attention_heads");
  const int64_t groups = c.size_or(c.has("n_head_kv") ? "n_head_kv" : "num_kv_heads", m.attention.heads);
  m.attention.kv_heads = new_architecture ? groups : c.flag_or("multi_query", true) ? 1 : m.attention.heads;
  m.attention.head_dim = head_share(c, m, "hidden_size");
  m.mlp.ffn_hidden = c.size_or("ffn_hidden_size", 4 * m.hidden);
  m.norm_epsilon = c.real_or("layer_norm_epsilon", 1e-5);
  m.parallel_residual = new_architecture || c.flag_or("parallel_attn", true);
  const int64_t norms = c.size_or("num_ln_in_parallel_attn", new_architecture ? 2 : 1);
  if (m.parallel_residual && norms == 1) m.norm_placement = NormPlacement::shared;
  m.position = c.flag_or("alibi", false) ? PositionKind::alibi : PositionKind::rotary;
  m.rotary.base = rotary_setting(c, "rope_theta", 10000.0);
  m.attention.qkv_bias = m.attention.output_bias = m.mlp.bias = c.flag_or("bias", false);
  m.mlp.activation = activation(c, "activation", "gelu");
  m.tied_embeddings = c.flag_or("tie_word_embeddings", true);
  return m;
}

// The list of layers, from intervals and the like.
LayerList layers_of(const Draft& m) {
  return LayerList::of(m.layer_count, [&](int64_t l) {
    LayerKind kind{.attention = m.attention};
    if (l % m.window_interval != 0) kind.attention->window.reset();
    if (m.position == PositionKind::rotary) kind.attention->rotary = m.rotary;
    const int64_t above = l - m.leading_dense_layers;
    if (!m.moe || above < 0 || (above + 1) % m.expert_interval != 0) {
      kind.mlp = m.mlp;
      return kind;
    }
    kind.moe = m.moe;
    kind.moe->expert = m.mlp;
    kind.moe->expert.ffn_hidden = m.moe->expert.ffn_hidden;
    return kind;
  });
}

using Importer = Draft (*)(Config&);

const std::map<std::string, Importer>& importers() {
  static const std::map<std::string, Importer> table{{"bloom", import_bloom},
                                                     {"deepseek_v2", import_deepseek_v2},
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
                                                     {"qwen2_5_vl", import_qwen2},
                                                     {"qwen2_5_vl_text", import_qwen2},
                                                     {"qwen2_vl", import_qwen2},
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
  // A folder's name may be any bytes, and the cut may split a character: plans are UTF-8.
  for (char& letter : name) {
    if (letter < ' ' || letter > '~') letter = '_';
  }
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
  Json text = nested ? config["text_config"] : config;
  // The whole model decides whether the head is tied, where the text part leaves it open.
  if (nested && !text.contains("tie_word_embeddings") && config.contains("tie_word_embeddings"))
    text["tie_word_embeddings"] = config["tie_word_embeddings"];
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
  Draft draft = importer->second(reader);
  check_layer_types(reader, draft);
  problems.throw_if_any();
  ModelSpec model = draft;
  model.layers = layers_of(draft);
  model.name = model_name(config, file, type);
  // Through our own reader once, so that ranges are checked in one place.
  const std::string own_format = file + ", read as a model file,";
  model = from_json<ModelSpec>(to_json(model), own_format);
  validate_model(model, own_format);
  return model;
}

}  // namespace mpt::models
