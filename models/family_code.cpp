// SPDX-License-Identifier: Apache-2.0

// Exceptions to the rules of models/dialects/hugging_face.json, family by family, for reading and writing.

#include <map>
#include <set>

#include "base/ranges.h"
#include "models/family_files.h"

namespace mpt::models {
namespace {

using Names = std::vector<std::string>;

constexpr double kUsualRotaryBase = 10000.0;

// The table of positions has two additional rows, for an offset.
void read_opt(FamilyReader& r, ModelDraft& d) {
  Config& c = r.config();
  d.model.max_positions += 2;
  if (c.size_or("word_embed_proj_dim", d.model.hidden) != d.model.hidden)
    c.refuse("word_embed_proj_dim", "a projected embedding (OPT-350m)");
}

void write_opt(FamilyWriter& w, ModelDraft& d) {
  d.model.max_positions -= 2;
  w.put("word_embed_proj_dim", d.model.hidden);
  w.put("do_layer_norm_before", true);
}

// All queries share one head of keys and values, unless the file says otherwise.
void read_multi_query(FamilyReader& r, ModelDraft& d) {
  if (!r.config().flag_or("multi_query", true)) d.full.kv_heads = d.window.kv_heads = d.full.heads;
}

void write_multi_query(FamilyWriter& w, ModelDraft& d) { w.put("multi_query", d.full.kv_heads == 1); }

void read_falcon(FamilyReader& r, ModelDraft& d) {
  Config& c = r.config();
  const bool new_architecture = c.flag_or("new_decoder_architecture", false);
  const int64_t groups = c.size_or(c.has("n_head_kv") ? "n_head_kv" : "num_kv_heads", d.full.heads);
  d.full.kv_heads = new_architecture ? groups : c.flag_or("multi_query", true) ? 1 : d.full.heads;
  d.model.parallel_residual = new_architecture || c.flag_or("parallel_attn", true);
  const int64_t norms = c.size_or("num_ln_in_parallel_attn", new_architecture ? 2 : 1);
  if (d.model.parallel_residual && norms == 1) d.model.norm_placement = NormPlacement::shared;
  if (!c.flag_or("alibi", false)) return;
  d.model.position = PositionKind::alibi;
  d.full.rotary.reset();
}

void write_falcon(FamilyWriter& w, ModelDraft& d) {
  const bool grouped = d.full.kv_heads != d.full.heads && d.full.kv_heads != 1;
  w.put("new_decoder_architecture", grouped);
  if (grouped) w.put("num_kv_heads", d.full.kv_heads);
  if (!grouped) w.put("multi_query", d.full.kv_heads == 1);
  if (!grouped) w.put("parallel_attn", d.model.parallel_residual);
  if (d.model.parallel_residual)
    w.put("num_ln_in_parallel_attn", d.model.norm_placement == NormPlacement::shared ? 1 : 2);
  w.put("alibi", d.model.position == PositionKind::alibi);
}

void read_gemma(FamilyReader& r, ModelDraft& d) {
  // The first files have "hidden_act": "gelu" for models trained with the tanh form; the classes correct it.
  if (!r.config().has("hidden_activation") && d.mlp->activation == ActivationKind::gelu)
    d.mlp->activation = ActivationKind::gelu_tanh;
}

// Full layers have another head size and number of heads, and their keys are also their values.
void read_gemma4(FamilyReader& r, ModelDraft& d) {
  Config& c = r.config();
  read_gemma(r, d);
  d.window.keys_are_values = false;
  if (!d.full.keys_are_values) d.full.kv_heads = d.window.kv_heads;
  d.mixers.back() = "full";
  d.borrowers = std::min<int64_t>(d.borrowers, int64_t(d.mixers.size()) - 1);
  // transformers 5 saves the differing values of full layers by layer; the last layer is full.
  if (c.has("per_layer_config")) {
    Config own = c.inner("per_layer_config").inner(std::to_string(d.mixers.size() - 1).c_str());
    d.full.head_dim = own.size_or("head_dim", d.window.head_dim);
    d.full.kv_heads = own.size_or("num_key_value_heads", d.window.kv_heads);
  }
  if (c.flag_or("enable_moe_block", false)) return;
  d.mlps = Names(d.mixers.size(), "dense");
  d.moe.reset();
}

void write_gemma4(FamilyWriter& w, ModelDraft& d) {
  // Its files have one scaling that other types lack.
  if (const auto& scaling = d.full.rotation().scaling; scaling && scaling->kind >= RotaryScalingKind::longrope)
    w.put("rope_parameters/full_attention/rope_type", scaling->factor == 1.0 ? "proportional" : "default");
  w.put("rope_parameters/sliding_attention/rope_type", "default");
  w.put("enable_moe_block", d.moe.has_value());
  if (!d.full.keys_are_values) w.put("num_global_key_value_heads", nullptr);
}

// Old and new classes differ in the default. The file must have the key, even if it is null.
void read_deepseek_v3(FamilyReader& r, ModelDraft&) {
  Config& c = r.config();
  if (c.absent("n_shared_experts")) c.add("n_shared_experts", "missing", "a whole number or null");
}

void read_deepseek_v2(FamilyReader& r, ModelDraft& d) {
  read_deepseek_v3(r, d);
  if (!d.moe || r.config().text_or("topk_method", "greedy") != "greedy") return;
  d.moe->expert_groups = d.moe->groups_per_token = 1;
}

void write_deepseek_v2(FamilyWriter& w, ModelDraft& d) {
  const bool grouped = d.moe && d.moe->groups_per_token < d.moe->expert_groups;
  w.put("topk_method", grouped ? "group_limited_greedy" : "greedy");
}

// The file must have the key, also for models without experts.
void write_deepseek_v3(FamilyWriter& w, ModelDraft& d) {
  if (!d.moe) w.put(Value::shared_count, 0);
}

// Without a window all layers have rotary positions.
void read_exaone4(FamilyReader& r, ModelDraft& d) {
  Config& c = r.config();
  if (r.count_of(Value::window) == 0) {
    d.mixers = Names(d.mixers.size(), "rotary");
    return;
  }
  if (!c.is_text("sliding_window_pattern") || c.has("layer_types")) return;
  const std::string pattern = c.text_or("sliding_window_pattern", "L");
  for (size_t l = 0; l < d.mixers.size(); ++l)
    d.mixers[l] = pattern[l % std::max<size_t>(1, pattern.size())] == 'L' ? "window" : "full";
  d.mixers.back() = "full";
}

// Files may set these widths to "auto". All are then expand x hidden.
void read_mamba(FamilyReader& r, ModelDraft& d) {
  if (!d.linear) return;
  Config& c = r.config();
  const int64_t width = r.count_of(Value::linear_width) > 0
                            ? r.count_of(Value::linear_width)
                            : int64_t(c.real_or("mamba_expand", 2.0) * double(d.model.hidden));
  if (!r.says(Value::linear_head_dim) || c.is_text("mamba_d_head"))
    d.linear->head_dim = std::max<int64_t>(1, width / d.linear->heads);
}

void write_mamba(FamilyWriter& w, ModelDraft& d) {
  if (!d.linear) return;
  const int64_t width = d.linear->heads * d.linear->head_dim;
  if (w.family().keys.contains(Value::linear_width)) return w.put(Value::linear_width, width);
  w.put("mamba_expand", width % d.model.hidden == 0 ? Json(width / d.model.hidden)
                                                    : Json(double(width) / double(d.model.hidden)));
}

// A layer with only shared experts is a dense MLP.
void read_granite_hybrid(FamilyReader& r, ModelDraft& d) {
  Config& c = r.config();
  read_mamba(r, d);
  if (c.text_or("position_embedding_type", "none") == "rope") {
    d.model.position = PositionKind::rotary;
    d.full.rotary = Rotary{r.real_of(Value::rotary_base), 1.0, {}};
  }
  if (c.count_or("num_local_experts", 0) > 0) return;
  d.mlps = Names(d.mixers.size(), "dense");
  d.moe.reset();
  d.mlp->ffn_hidden = r.size_of(Value::shared_ffn);
}

void write_granite_hybrid(FamilyWriter& w, ModelDraft& d) {
  write_mamba(w, d);
  w.put("position_embedding_type", d.model.position == PositionKind::rotary ? "rope" : "nope");
  if (d.moe || !d.mlp) return;
  w.put("num_local_experts", 0);
  w.put(Value::shared_ffn, d.mlp->ffn_hidden);
}

// For Kimi Linear 48B. Kimi K3 uses the same type name.
void write_kimi_linear(FamilyWriter& w, ModelDraft& d) {
  Json linear = Json::array(), full = Json::array();
  for (size_t l = 0; l < d.mixers.size(); ++l)
    (d.mixers[l] == "linear" ? linear : full).push_back(int64_t(l) + 1);
  w.put("linear_attn_config/kda_layers", linear);
  w.put("linear_attn_config/full_attn_layers", full);
  w.put("first_k_dense_replace", std::find(d.mlps.begin(), d.mlps.end(), "experts") - d.mlps.begin());
}

// Attention is in one of eight layers, the selective scan in all others. Experts are in every second layer.
void read_jamba(FamilyReader& r, ModelDraft& d) {
  Config& c = r.config();
  const int64_t period = c.size_or("attn_layer_period", 8), offset = c.count_or("attn_layer_offset", 4);
  const int64_t expert_period = c.size_or("expert_layer_period", 2);
  const int64_t expert_offset = c.count_or("expert_layer_offset", 1);
  const bool experts = d.moe && d.moe->experts > 1;
  for (size_t l = 0; l < d.mixers.size(); ++l) {
    d.mixers[l] = int64_t(l) % period == offset ? "full" : "linear";
    d.mlps[l] = experts && int64_t(l) % expert_period == expert_offset ? "experts" : "dense";
  }
  LinearMixer mixer;
  mixer.kind = LinearKind::mamba1;
  mixer.heads = c.size_or("mamba_expand", 2) * d.model.hidden;
  mixer.head_dim = mixer.key_heads = 1;
  mixer.key_dim = r.size_of(Value::linear_key_dim);
  mixer.convolution = r.count_of(Value::convolution);
  mixer.step_rank = r.says(Value::linear_step_rank) && !c.is_text("mamba_dt_rank")
                        ? r.size_of(Value::linear_step_rank)
                        : (d.model.hidden + 15) / 16;
  mixer.norms_steps = true;
  d.linear = mixer;
}

// Writes a period and an offset from the first two places of a word in a list; nothing if no layer has it.
void put_period(FamilyWriter& w, const Names& names, const char* name, const std::string& key) {
  std::vector<int64_t> places;
  for (size_t l = 0; l < names.size(); ++l)
    if (names[l] == name) places.push_back(int64_t(l));
  if (places.empty()) return;
  w.put(key + "_offset", places.front());
  w.put(key + "_period", places.size() > 1 ? places[1] - places[0] : int64_t(names.size()));
}

void write_jamba(FamilyWriter& w, ModelDraft& d) {
  put_period(w, d.mixers, "full", "attn_layer");
  put_period(w, d.mlps, "experts", "expert_layer");
  if (!d.moe) w.put(Value::experts, 1);
  if (!d.linear) return;
  w.put("mamba_expand", d.linear->heads / d.model.hidden);
  w.put("mamba_dt_rank", d.linear->step_rank);
}

// Heads of each layer are in a list, and the gate may have one number for each element.
void read_laguna(FamilyReader& r, ModelDraft& d) {
  Config& c = r.config();
  if (c.is_text("gating") && c.text_or("gating", "") == "per-element")
    d.full.output_gate = d.window.output_gate = OutputGate::elementwise;
  if (c.is_flag("gating") && !c.flag_or("gating", true))
    d.full.output_gate = d.window.output_gate = OutputGate::none;
  if (!c.has("num_attention_heads_per_layer")) return;
  const Json* const heads = c.list("num_attention_heads_per_layer");
  const auto layers = int64_t(d.mixers.size());
  if (heads == nullptr || int64_t(heads->size()) != layers)
    return c.add("num_attention_heads_per_layer", "another number of entries",
                 fmt::format("one for each of {} layers", layers));
  d.made = LayerList::of(layers, [&](int64_t l) {
    LayerKind kind = kind_of(d, l);
    const Json& own = (*heads)[size_t(l)];
    const bool fits = own.is_number_integer() && own.get<double>() >= 1.0 && own.get<double>() <= 65536.0;
    if (!fits) c.refuse("num_attention_heads_per_layer", "heads " + detail::describe_json(own));
    if (fits && kind.attention) kind.attention->heads = own.get<int64_t>();
    return kind;
  });
}

void write_laguna(FamilyWriter& w, ModelDraft& d) {
  const OutputGate gate = d.full.output_gate;
  w.put("gating", gate == OutputGate::elementwise ? Json("per-element") : Json(gate == OutputGate::per_head));
  Json heads = Json::array();
  for (int64_t l = 0; l < w.model().layers.count(); ++l) {
    const auto& attention = w.model().layers[l].attention;
    heads.push_back(attention ? attention->heads : 0);
  }
  w.put("num_attention_heads_per_layer", heads);
  w.put("rope_parameters/sliding_attention/rope_type", "default");
}

// Norms of queries and keys have no weights there, and layers without positions have no such norms.
void read_llama4(FamilyReader& r, ModelDraft&) {
  if (r.config().flag_or("use_qk_norm", true))
    r.config().tell("norms of queries and keys, which have no weights there, are left out");
}

// The entry of layer `l` in a list. Lists may be longer, for next-token layers.
double entry_of(Config& c, const char* key, int64_t l, int64_t layers, double otherwise) {
  const Json* const list = c.list(key);
  if (list == nullptr) return otherwise;
  if (int64_t(list->size()) < layers) {
    c.add(key, fmt::format("{} entries for {} layers", list->size(), layers), "one per layer");
    return otherwise;
  }
  const Json& entry = (*list)[size_t(l)];
  if (entry.is_number()) return entry.get<double>();
  c.add(key, "an entry that is " + detail::describe_json(entry), "numbers");
  return otherwise;
}

// Rotary positions differ between layers. Lists have a base and a fraction for each, and only the named kinds
// of layers are scaled.
void read_step3p5(FamilyReader& r, ModelDraft& d) {
  Config& c = r.config();
  const bool one_base = !c.has("rope_theta") || c.is_number("rope_theta");
  const double base = one_base ? c.real_or("rope_theta", kUsualRotaryBase) : kUsualRotaryBase;
  if (!c.has("rope_theta")) r.tell_missing_base(base);
  const double fraction = c.real_or("partial_rotary_factor", 1.0);
  std::set<std::string> scaled{"full"};
  if (c.has("yarn_only_types")) {
    scaled.clear();
    const Json* const types = c.list("yarn_only_types");
    for (size_t i = 0; types != nullptr && i < types->size(); ++i) {
      const auto word =
          r.family().mixers.words.find((*types)[i].is_string() ? (*types)[i].get<std::string>() : "");
      if (word != r.family().mixers.words.end()) scaled.insert(word->second);
    }
  }
  const auto layers = int64_t(d.mixers.size());
  d.made = LayerList::of(layers, [&](int64_t l) {
    LayerKind kind = kind_of(d, l);
    if (!kind.attention || !kind.attention->rotary) return kind;
    Rotary& rotary = *kind.attention->rotary;
    rotary.base = one_base ? base : entry_of(c, "rope_theta", l, layers, base);
    rotary.fraction = c.has("partial_rotary_factors")
                          ? entry_of(c, "partial_rotary_factors", l, layers, fraction)
                          : fraction;
    if (!scaled.contains(d.mixers[size_t(l)])) rotary.scaling.reset();
    return kind;
  });
}

void write_step3p5(FamilyWriter& w, ModelDraft& d) {
  Json bases = Json::array(), fractions = Json::array();
  std::set<std::string> scaled;
  for (int64_t l = 0; l < w.model().layers.count(); ++l) {
    const auto& attention = w.model().layers[l].attention;
    if (!attention || !attention->rotary) return;
    bases.push_back(attention->rotary->base);
    fractions.push_back(attention->rotary->fraction);
    if (!attention->rotary->scaling) continue;
    scaled.insert(attention->window ? "sliding_attention" : "full_attention");
    w.scaling(d.full.rotary->scaling = attention->rotary->scaling);
  }
  w.put("rope_theta", bases);
  w.put("partial_rotary_factors", fractions);
  w.put("yarn_only_types", Json(scaled));
}

// Number and size of heads are those of attention.
void read_lightning(FamilyReader&, ModelDraft& d) {
  if (!d.linear) return;
  d.linear->heads = d.linear->key_heads = d.full.heads;
  d.linear->head_dim = d.linear->key_dim = d.full.head_dim;
}

void write_lightning(FamilyWriter&, ModelDraft& d) {
  if (!d.linear) return;
  d.full.heads = d.linear->heads;
  d.full.head_dim = d.linear->head_dim;
}

// Two thirds of the width in the file, rounded up (Lfm2MLP).
void read_lfm2(FamilyReader& r, ModelDraft& d) {
  Config& c = r.config();
  if (!c.flag_or("block_auto_adjust_ff_dim", true)) return;
  const int64_t multiple = c.size_or("block_multiple_of", 256);
  const auto width = int64_t(c.real_or("block_ffn_dim_multiplier", 1.0) * double(2 * d.mlp->ffn_hidden / 3));
  d.mlp->ffn_hidden = (width + multiple - 1) / multiple * multiple;
}

void write_lfm2(FamilyWriter& w, ModelDraft&) { w.put("block_auto_adjust_ff_dim", false); }

// Each block is two layers of attention with a dense MLP; the second also has experts (LongCat-Flash,
// arXiv:2509.01322, section 2.1).
void read_longcat(FamilyReader&, ModelDraft& d) {
  const size_t blocks = d.mixers.size();
  d.moe->router_bias = true;
  d.dense_beside_experts = true;
  d.mixers = Names(2 * blocks, "full");
  d.mlps.clear();
  for (size_t l = 0; l < 2 * blocks; ++l) d.mlps.emplace_back(l % 2 == 0 ? "dense" : "experts");
}

void write_longcat(FamilyWriter&, ModelDraft& d) {
  const size_t blocks = d.mixers.size() / 2;
  d.mixers = Names(blocks, "full");
  d.mlps = Names(blocks, "experts");
}

const std::map<std::string, FamilyCode>& codes() {
  static const std::map<std::string, FamilyCode> table{
      {"none", {}},
      {"opt", {read_opt, write_opt}},
      {"falcon", {read_falcon, write_falcon}},
      {"gemma", {read_gemma}},
      {"gemma4", {read_gemma4, write_gemma4}},
      {"deepseek_v2", {read_deepseek_v2, write_deepseek_v2}},
      {"deepseek_v3", {read_deepseek_v3, write_deepseek_v3}},
      {"deepseek_v4", deepseek_v4()},
      {"exaone4", {read_exaone4}},
      {"jamba", {read_jamba, write_jamba}},
      {"granite_hybrid", {read_granite_hybrid, write_granite_hybrid}},
      {"mamba", {read_mamba, write_mamba}},
      {"kimi_linear", {nullptr, write_kimi_linear}},
      {"laguna", {read_laguna, write_laguna}},
      {"lightning", {read_lightning, write_lightning}},
      {"llama4", {read_llama4}},
      {"step3p5", {read_step3p5, write_step3p5}},
      {"lfm2", {read_lfm2, write_lfm2}},
      {"longcat", {read_longcat, write_longcat}},
      {"multi_query", {read_multi_query, write_multi_query}},
      {"nemotron_h", nemotron_h()},
      {"nemotron_nas", nemotron_nas()}};
  return table;
}

}  // namespace

FamilyCode family_code(const Family& family) {
  return family.code.empty() ? FamilyCode{} : codes().at(family.code);
}

std::vector<std::string> family_code_names() {
  return mapped<std::string>(codes(), [](const auto& code) { return code.first; });
}

}  // namespace mpt::models
