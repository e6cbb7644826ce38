// SPDX-License-Identifier: Apache-2.0

// Models from flags of megatron/training/arguments.py and TransformerConfig at core_v0.19.2.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/text.h"
#include "frameworks/megatron-core/import.h"
#include "frameworks/megatron-core/tokenizers.h"
#include "frameworks/readers/expressions.h"

namespace mpt::frameworks {
namespace {

// Models that ModelSpec cannot describe.
void refuse_other_models(const MegatronFlags& f) {
  for (const char* name :
       {"hybrid-layer-pattern", "hybrid-override-pattern", "heterogeneous-layers-config-path",
        "heterogeneous-layers-config-encoded-json", "experimental-attention-variant", "linear-attention-freq",
        "moe-latent-size", "attention-output-gate", "is-hybrid-model", "mtp-hybrid-override-pattern",
        "bert-no-binary-head", "no-rope-freq", "yaml-cfg", "encoder-num-layers", "decoder-num-layers"}) {
    if (f.has(name)) f.refuse(name, "none: plans are for decoders of attention and MLPs or experts");
  }
}

// Whether each layer has experts. A number n means the first of every n layers.
std::vector<bool> layers_with_experts(const MegatronFlags& f, int64_t layers) {
  const std::string text = f.text("moe-layer-freq", "1");
  std::vector<bool> experts;
  if (text.find('[') == std::string::npos) {
    const int64_t interval = f.number("moe-layer-freq", between(1, 1e5), 1);
    for (int64_t l = 0; l < layers; ++l) experts.push_back(l % interval == 0);
  } else {
    for (const int64_t has : layer_pattern(text).value_or(std::vector<int64_t>{}))
      experts.push_back(has == 1);
  }
  if (int64_t(experts.size()) != layers)
    f.refuse("moe-layer-freq", "a number, or 0 or 1 for each layer, such as ([0]*3+[1]*58)");
  if (std::find(experts.begin(), experts.end(), true) == experts.end())
    f.refuse("moe-layer-freq", "experts in at least one layer");
  return experts;
}

MixtureOfExperts experts_of(const MegatronFlags& f, const Mlp& mlp, std::vector<std::string>& notes) {
  using M = MixtureOfExperts;
  MixtureOfExperts moe;
  moe.experts = f.number("num-experts", rule_of(&M::experts), 0);
  moe.experts_per_token = f.number("moe-router-topk", rule_of(&M::experts_per_token), 2);
  moe.expert_groups = f.number("moe-router-num-groups", rule_of(&M::expert_groups), 1);
  moe.groups_per_token = f.number("moe-router-group-topk", rule_of(&M::groups_per_token), moe.expert_groups);
  moe.expert = mlp;
  moe.expert.ffn_hidden = f.number("moe-ffn-hidden-size", rule_of(&Mlp::ffn_hidden), mlp.ffn_hidden);
  moe.shared_ffn_hidden = f.number("moe-shared-expert-intermediate-size", rule_of(&M::shared_ffn_hidden), 0);
  moe.shared_gate = f.has("moe-shared-expert-gate");
  moe.router_bias = mlp.bias || f.has("moe-router-enable-expert-bias");
  moe.bias_in_logits = mlp.bias;
  moe.bias_rate = f.real("moe-router-bias-update-rate", rule_of(&M::bias_rate), moe.bias_rate);
  const std::string scores = f.text("moe-router-score-function", "softmax");
  if (scores != "softmax") moe.scores = RouterScores::sigmoid;
  if (scores == "sqrtsoftplus")
    notes.emplace_back("--moe-router-score-function sqrtsoftplus is taken as sigmoid");
  // Sigmoid scores are normalized whatever --moe-router-pre-softmax says.
  moe.normalized = scores != "softmax" ? moe.experts_per_token > 1 : !f.has("moe-router-pre-softmax");
  moe.routed_scale = f.real("moe-router-topk-scaling-factor", rule_of(&M::routed_scale), 1.0);
  const std::string balance = f.text("moe-router-load-balancing-type", "aux_loss");
  moe.balance_loss = 0.0;
  if (balance.ends_with("aux_loss"))
    moe.balance_loss = f.real("moe-aux-loss-coeff", rule_of(&M::balance_loss), 0.0);
  if (f.texts("moe-router-load-balancing-type").size() > 1)
    notes.emplace_back("--moe-router-load-balancing-type: the first of several is read");
  return moe;
}

LatentAttention latent_of(const MegatronFlags& f) {
  using L = LatentAttention;
  LatentAttention latent;
  latent.query_rank = f.number("q-lora-rank", rule_of(&L::query_rank), 0);
  latent.key_value_rank = f.number("kv-lora-rank", rule_of(&L::key_value_rank), 32);
  latent.nope_head_dim = f.number("qk-head-dim", rule_of(&L::nope_head_dim), 128);
  latent.rope_head_dim = f.number("qk-pos-emb-head-dim", rule_of(&L::rope_head_dim), 64);
  latent.value_head_dim = f.number("v-head-dim", rule_of(&L::value_head_dim), 128);
  return latent;
}

Attention attention_of(const MegatronFlags& f, int64_t hidden) {
  using A = Attention;
  Attention a;
  a.heads = f.required("num-attention-heads", rule_of(&A::heads));
  a.kv_heads =
      f.has("group-query-attention") ? f.number("num-query-groups", rule_of(&A::kv_heads), 1) : a.heads;
  a.head_dim = f.number("kv-channels", rule_of(&A::head_dim), hidden / a.heads);
  a.sinks = f.text("softmax-type", "vanilla") == "learnable";
  if (f.has("multi-latent-attention")) {
    a.latent = latent_of(f);
    a.head_dim = a.latent->nope_head_dim + a.latent->rope_head_dim;
  } else if (f.has("qk-layernorm")) {
    a.query_key_norm = QueryKeyNorm::per_head;
  }
  return a;
}

// "127,0": keys to the left of a query's own, and to the right.
std::optional<int64_t> window_of(const MegatronFlags& f) {
  const std::string text = f.text("window-size", "None");
  if (!f.has("window-size") || text == "None") return std::nullopt;
  int left = -1, right = -1;
  const char* begin = text.c_str() + (text.starts_with('(') ? 1 : 0);
  if (std::sscanf(begin, "%9d , %9d", &left, &right) != 2 || left < 0 || right != 0)
    f.refuse("window-size", "a causal window, such as 127,0");
  return left + 1;
}

// Whether each layer has the window. A number n means all but every n-th layer.
std::vector<bool> layers_with_window(const MegatronFlags& f, int64_t layers) {
  const std::string skipped = f.text("window-attn-skip-freq", "None");
  std::vector<bool> windowed(size_t(layers), true);
  if (!f.has("window-attn-skip-freq") || skipped == "None") return windowed;
  if (skipped.find('[') == std::string::npos) {
    const int64_t full = f.number("window-attn-skip-freq", between(1, 1e5), 1);
    for (int64_t l = 0; l < layers; ++l) windowed[size_t(l)] = (l + 1) % full != 0;
    return windowed;
  }
  const auto pattern = layer_pattern(skipped);
  if (!pattern || int64_t(pattern->size()) != layers)
    f.refuse("window-attn-skip-freq", "a number, or 0 or 1 for each layer");
  for (size_t l = 0; l < windowed.size(); ++l) windowed[l] = (*pattern)[l] == 1;
  return windowed;
}

RotaryScaling yarn_of(const MegatronFlags& f, const Attention& a, double factor) {
  using S = RotaryScaling;
  RotaryScaling s{.kind = RotaryScalingKind::yarn, .factor = factor, .original_positions = 4096};
  if (a.latent) {
    s.mscale = f.real("mscale", rule_of(&S::mscale), 1.0);
    s.mscale_all_dim = f.real("mscale-all-dim", rule_of(&S::mscale_all_dim), 0.0);
    return s;
  }
  s.original_positions =
      f.number("yarn-original-max-position-embeddings", rule_of(&S::original_positions), 4096);
  s.beta_fast = f.real("yarn-beta-fast", rule_of(&S::beta_fast), 32.0);
  s.beta_slow = f.real("yarn-beta-slow", rule_of(&S::beta_slow), 1.0);
  s.whole_dimensions = !f.has("no-yarn-correction-range-round-to-int");
  return s;
}

std::optional<RotaryScaling> scaling_of(const MegatronFlags& f, const Attention& a,
                                        const std::string& position) {
  const FieldRule rule = rule_of(&RotaryScaling::factor);
  const bool yarn = a.latent ? f.text("rope-type", "yarn") == "yarn" : position == "yarn";
  const double factor = f.real("rotary-scaling-factor", rule, 1.0);
  if (yarn && factor != 1.0) return yarn_of(f, a, factor);
  // Llama 3's rule and its other numbers are fixed there.
  if (f.has("use-rope-scaling"))
    return RotaryScaling{RotaryScalingKind::llama3, f.real("rope-scaling-factor", rule, 8.0), 1.0, 4.0, 8192};
  if (f.has("rotary-seq-len-interpolation-factor") &&
      f.text("rotary-seq-len-interpolation-factor", "None") != "None") {
    return RotaryScaling{RotaryScalingKind::linear, f.real("rotary-seq-len-interpolation-factor", rule, 1.0),
                         1.0, 4.0, 8192};
  }
  return std::nullopt;
}

void set_positions(const MegatronFlags& f, ModelSpec& m, Attention& a) {
  using M = ModelSpec;
  std::string position = f.text("position-embedding-type", "learned_absolute");
  if (f.has("use-rotary-position-embeddings")) position = "rope";
  if (position == "mrope" || position == "relative")
    f.refuse("position-embedding-type", "learned_absolute, rope, yarn or none");
  m.position = position == "rope" || position == "yarn" ? PositionKind::rotary
               : position == "none"                     ? PositionKind::none
                                                        : PositionKind::learned;
  m.max_positions = f.number("max-position-embeddings", rule_of(&M::max_positions),
                             f.number("seq-length", rule_of(&Workload::sequence), 2048));
  const double base = f.real("rotary-base", rule_of(&Rotary::base), 10000.0);  // checked even if not used
  const double fraction = f.real("rotary-percent", rule_of(&Rotary::fraction), 1.0);
  f.real("rope-scaling-factor", rule_of(&RotaryScaling::factor), 8.0);
  f.real("rotary-scaling-factor", rule_of(&RotaryScaling::factor), 1.0);
  if (m.position != PositionKind::rotary) return;
  a.rotary = Rotary{base, fraction, scaling_of(f, a, position)};
}

Mlp mlp_of(const MegatronFlags& f, int64_t hidden) {
  Mlp mlp;
  mlp.gated = f.has("swiglu") || f.has("quick-geglu");
  // Megatron-LM's own default: 4 h, and two thirds of it with SwiGLU.
  mlp.ffn_hidden = f.number("ffn-hidden-size", rule_of(&Mlp::ffn_hidden),
                            f.has("swiglu") ? int64_t(4 * hidden * 2 / 3 / 64) * 64 : 4 * hidden);
  mlp.bias = !f.has("disable-bias-linear");
  // Biases and GELU in one kernel use its approximation by tanh.
  const bool exact = f.has("no-bias-gelu-fusion") || !mlp.bias;
  mlp.activation = mlp.gated ? ActivationKind::silu
                   : exact   ? ActivationKind::gelu
                             : ActivationKind::gelu_tanh;
  if (f.has("activation-func-clamp-value") && f.text("activation-func-clamp-value", "None") != "None") {
    const double limit = f.real("activation-func-clamp-value", rule_of(&Mlp::activation_limit), 7.0);
    if (mlp.gated) mlp.activation_limit = limit;
  }
  if (f.has("squared-relu")) mlp.activation = ActivationKind::squared_relu;
  return mlp;
}

// Of tokenizers other than GPT-2's, which is Megatron-LM's default. Files of a model's flags alone often have
// its name on the Hugging Face hub.
std::string named_tokenizer(const MegatronFlags& f) {
  const std::string type = f.has("tokenizer-type") ? f.text_or_source("tokenizer-type") : "GPT2BPETokenizer";
  if (type == "GPT2BPETokenizer" || type == "NullTokenizer") return "";
  if (f.has("tokenizer-model")) return f.text_or_source("tokenizer-model");
  const std::string stem = std::filesystem::path(f.file()).stem().string();
  return vocabulary_of_tokenizer(stem) ? stem : type;
}

bool says_vocabulary(const MegatronFlags& f) { return f.has("vocab-size") || f.has("padded-vocab-size"); }

void set_vocabulary(const MegatronFlags& f, ModelSpec& m, std::vector<std::string>& notes) {
  using M = ModelSpec;
  m.vocab =
      f.number("vocab-size", rule_of(&M::vocab), f.number("padded-vocab-size", rule_of(&M::vocab), 50257));
  if (says_vocabulary(f)) return;
  const std::string tokenizer = named_tokenizer(f);
  if (const auto known = vocabulary_of_tokenizer(tokenizer)) {
    m.vocab = *known;
    notes.push_back(
        fmt::format("no --vocab-size: {} tokens are taken, as {} has", *known, cut_text(tokenizer, 60)));
    return;
  }
  notes.push_back(
      fmt::format("no --vocab-size: the tokenizer{} decides, GPT-2's 50257 tokens are taken here; add "
                  "--vocab-size to a copy "
                  "of the file, or name the model with --model",
                  tokenizer.empty() ? "" : " " + std::string(cut_text(tokenizer, 60))));
}

LayerList layers_of(const MegatronFlags& f, int64_t layers, const Attention& attention, const Mlp& mlp,
                    std::vector<std::string>& notes) {
  std::optional<MixtureOfExperts> moe;
  std::vector<bool> experts(size_t(layers), false);
  if (f.number("num-experts", between(0, rule_of(&MixtureOfExperts::experts).maximum), 0) > 0) {
    moe = experts_of(f, mlp, notes);
    experts = layers_with_experts(f, layers);
  }
  const std::optional<int64_t> window = window_of(f);
  const std::vector<bool> windowed = layers_with_window(f, layers);
  return LayerList::of(layers, [&](int64_t l) {
    LayerKind kind{.attention = attention};
    if (windowed[size_t(l)]) kind.attention->window = window;
    experts[size_t(l)] ? void(kind.moe = moe) : void(kind.mlp = mlp);
    return kind;
  });
}

}  // namespace

std::string open_vocabulary(const MegatronFlags& f) {
  if (says_vocabulary(f)) return "";
  const std::string tokenizer = named_tokenizer(f);
  return vocabulary_of_tokenizer(tokenizer) ? "" : tokenizer;
}

ModelSpec megatron_model(const MegatronFlags& f, std::vector<std::string>& notes) {
  using M = ModelSpec;
  refuse_other_models(f);
  ModelSpec m;
  m.name = "imported";
  const auto layers = f.required("num-layers", between(1, 1e5));
  m.hidden = f.required("hidden-size", rule_of(&M::hidden));
  Attention attention = attention_of(f, m.hidden);
  const Mlp mlp = mlp_of(f, m.hidden);
  attention.output_bias = mlp.bias;
  attention.qkv_bias = mlp.bias || f.has("add-qkv-bias");
  set_vocabulary(f, m, notes);
  m.norm = f.text("normalization", "LayerNorm") == "RMSNorm" ? NormKind::rms_norm : NormKind::layer_norm;
  m.norm_epsilon = f.real(f.has("layernorm-epsilon") ? "layernorm-epsilon" : "norm-epsilon",
                          rule_of(&M::norm_epsilon), 1e-5);
  set_positions(f, m, attention);
  m.tied_embeddings = !f.has("untie-embeddings-and-output-weights");
  m.layers = layers_of(f, layers, attention, mlp, notes);
  m.next_token_layers = f.number("mtp-num-layers", rule_of(&M::next_token_layers), 0);
  return m;
}

}  // namespace mpt::frameworks
