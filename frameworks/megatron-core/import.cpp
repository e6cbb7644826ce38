// SPDX-License-Identifier: Apache-2.0

// Flags of megatron/training/arguments.py at core_v0.15.0, read back.

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "frameworks/import.h"
#include "frameworks/megatron-core/pipeline_layout.h"
#include "frameworks/registry.h"

namespace mpt::frameworks {
namespace {

// Words of a shell script, as far as flags need them: quotes, comments, line ends and array brackets go.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool comment = false;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
  };
  for (const char c : text) {
    if (c == '\n') comment = false;
    if (comment) continue;
    if (c == '#' && word.empty()) {
      comment = true;
    } else if (std::isspace(static_cast<unsigned char>(c)) || c == '\\') {
      end_word();
    } else if (c != '"' && c != '\'') {
      word += c;
    }
  }
  end_word();
  return words;
}

class Flags {
 public:
  explicit Flags(const std::filesystem::path& file) : file_(file.string()) {
    const std::string text = read_file(file, kMostImportedBytes);
    const std::vector<std::string> words = words_of(text);
    for (size_t i = 0; i < words.size(); ++i) {
      std::string word = words[i];
      const size_t dashes = word.find("--");
      if (dashes == std::string::npos) {
        const size_t assigned = word.find('=');
        if (assigned != std::string::npos && assigned > 0)
          variables_[word.substr(0, assigned)] = word.substr(assigned + 1);
        continue;
      }
      word = word.substr(dashes + 2);  // behind a bracket, such as ARGS=(--num-layers
      while (!word.empty() && word.back() == ')') word.pop_back();
      const size_t equals = word.find('=');
      if (equals != std::string::npos) {
        values_[word.substr(0, equals)] = word.substr(equals + 1);
      } else if (i + 1 < words.size() && words[i + 1].find("--") != 0) {
        std::string value = words[i + 1];
        while (!value.empty() && value.back() == ')') value.pop_back();
        values_[word] = value;
      } else {
        values_[word] = "";
      }
    }
    for (auto& [name, value] : values_) value = expanded(value);
    if (values_.count("num-layers") == 0) {
      throw UserError(Problem{file_, "no --num-layers", "Megatron-LM arguments, such as its scripts hold",
                              "name the file that holds the --flags"});
    }
  }

  bool has(const std::string& name) const { return values_.count(name) > 0; }
  std::string at(const std::string& name) const { return fmt::format("{} at --{}", file_, name); }
  std::string text(const std::string& name, const std::string& otherwise) const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : found->second;
  }
  /// A whole number within the range. The default is checked too, since it may follow from another flag.
  int64_t number(const std::string& name, const FieldRule& rule, int64_t otherwise) const {
    return int64_t(checked(name, rule, has(name) ? parsed<int64_t>(name, "a whole number") : otherwise));
  }
  double real(const std::string& name, const FieldRule& rule, double otherwise) const {
    return checked(name, rule, has(name) ? parsed<double>(name, "a number") : otherwise);
  }
  [[noreturn]] void refuse(const std::string& name, const std::string& allowed) const {
    throw UserError(Problem{at(name), fmt::format("\"{}\"", text(name, "").substr(0, 80)), allowed, ""});
  }
  // "127,0": keys to the left of a query's own, and to the right.
  std::optional<int64_t> window() const {
    if (!has("window-size")) return std::nullopt;
    const std::string& text = values_.at("window-size");
    int left = -1, right = -1;
    const char* begin = text.c_str() + (text.starts_with('(') ? 1 : 0);
    if (std::sscanf(begin, "%9d , %9d", &left, &right) != 2 || left < 0 || right != 0)
      throw UserError(Problem{fmt::format("{} at --window-size", file_),
                              fmt::format("\"{}\"", text.substr(0, 40)), "a causal window, such as 127,0",
                              ""});
    return left + 1;
  }
  int64_t required(const std::string& name, const FieldRule& rule) const {
    if (!has(name))
      throw UserError(Problem{file_, fmt::format("no --{}", name), "a value", "it says what the model is"});
    return number(name, rule, 0);
  }

 private:
  template <class T>
  T parsed(const std::string& name, const char* expected) const {
    const std::string& value = values_.at(name);
    T number{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error == std::errc() && end == value.data() + value.size()) return number;
    throw UserError(Problem{at(name), fmt::format("\"{}\"", cut_text(value, 40)), expected,
                            "put in the values of shell variables"});
  }
  template <class T>
  T checked(const std::string& name, const FieldRule& rule, T value) const {
    if (double(value) >= rule.minimum && double(value) <= rule.maximum) return value;
    throw UserError(Problem{
        at(name), has(name) ? fmt::format("{}", value) : fmt::format("left out, which means {} here", value),
        fmt::format("a number from {} to {}", rule.minimum, rule.maximum), ""});
  }

  // $NAME, ${NAME} and ${NAME:-otherwise}, by what the script assigns.
  std::string expanded(std::string value) const {
    constexpr int kMostRounds = 16;  // a variable may hold another
    constexpr size_t kMostBytes = 1 << 12;
    for (int round = 0; round < kMostRounds && value.size() <= kMostBytes; ++round) {
      const size_t begin = value.find('$');
      if (begin == std::string::npos || begin + 1 == value.size()) break;
      const bool braces = value[begin + 1] == '{';
      size_t end = begin + (braces ? 2 : 1);
      const size_t first = end;
      while (end < value.size() &&
             (std::isalnum(static_cast<unsigned char>(value[end])) || value[end] == '_'))
        ++end;
      const std::string name = value.substr(first, end - first);
      std::string otherwise;
      if (braces) {
        const size_t close = value.find('}', end);
        if (close == std::string::npos) break;
        if (value.compare(end, 2, ":-") == 0) otherwise = value.substr(end + 2, close - end - 2);
        end = close + 1;
      }
      const auto found = variables_.find(name);
      if (found == variables_.end() && otherwise.empty()) break;
      value = value.substr(0, begin) + (found == variables_.end() ? otherwise : found->second) +
              value.substr(end);
    }
    return value;
  }

  std::string file_;
  std::map<std::string, std::string> values_, variables_;
};

MixtureOfExperts experts_of(const Flags& f, const ModelSpec& m) {
  using M = MixtureOfExperts;
  M moe;
  moe.experts = f.number("num-experts", rule_of(&M::experts), 0);
  moe.experts_per_token = f.number("moe-router-topk", rule_of(&M::experts_per_token), 2);
  moe.expert_groups = f.number("moe-router-num-groups", rule_of(&M::expert_groups), 1);
  moe.groups_per_token = f.number("moe-router-group-topk", rule_of(&M::groups_per_token), moe.expert_groups);
  moe.expert_ffn_hidden = f.number("moe-ffn-hidden-size", rule_of(&M::expert_ffn_hidden), m.ffn_hidden);
  moe.shared_ffn_hidden = f.number("moe-shared-expert-intermediate-size", rule_of(&M::shared_ffn_hidden), 0);
  moe.router_bias = m.mlp_bias || f.has("moe-router-enable-expert-bias");
  if (f.text("moe-router-load-balancing-type", "aux_loss") == "aux_loss")
    moe.balance_loss = f.real("moe-aux-loss-coeff", rule_of(&M::balance_loss), 0.0);
  const std::string pattern = f.text("moe-layer-freq", "1");
  if (pattern.find('[') == std::string::npos) {
    moe.layer_interval = f.number("moe-layer-freq", rule_of(&M::layer_interval), 1);
  } else {
    for (const char c : pattern) {
      if (c == '1') break;
      if (c == '0') ++moe.leading_dense_layers;
    }
  }
  return moe;
}

LatentAttention latent_of(const Flags& f) {
  using L = LatentAttention;
  L latent;
  latent.query_rank = f.number("q-lora-rank", rule_of(&L::query_rank), 0);
  latent.key_value_rank = f.number("kv-lora-rank", rule_of(&L::key_value_rank), 512);
  latent.nope_head_dim = f.number("qk-head-dim", rule_of(&L::nope_head_dim), 128);
  latent.rope_head_dim = f.number("qk-pos-emb-head-dim", rule_of(&L::rope_head_dim), 64);
  latent.value_head_dim = f.number("v-head-dim", rule_of(&L::value_head_dim), 128);
  return latent;
}

ModelSpec model_of(const Flags& f) {
  using M = ModelSpec;
  M m;
  m.name = "imported";
  m.layers = f.required("num-layers", rule_of(&M::layers));
  m.hidden = f.required("hidden-size", rule_of(&M::hidden));
  m.heads = f.required("num-attention-heads", rule_of(&M::heads));
  m.kv_heads =
      f.has("group-query-attention") ? f.number("num-query-groups", rule_of(&M::kv_heads), 1) : m.heads;
  m.head_dim = f.number("kv-channels", rule_of(&M::head_dim), m.hidden / m.heads);
  m.gated_mlp = f.has("swiglu") || f.has("quick-geglu");
  // Megatron-LM's own default: 4 h, and two thirds of it with a gate.
  m.ffn_hidden = f.number("ffn-hidden-size", rule_of(&M::ffn_hidden),
                          m.gated_mlp ? int64_t(4 * m.hidden * 2 / 3 / 64) * 64 : 4 * m.hidden);
  m.activation = m.gated_mlp ? ActivationKind::silu : ActivationKind::gelu_tanh;
  if (f.has("activation-func-clamp-value"))
    m.activation_limit = f.real("activation-func-clamp-value", rule_of(&M::activation_limit), 7.0);
  m.vocab =
      f.number("vocab-size", rule_of(&M::vocab), f.number("padded-vocab-size", rule_of(&M::vocab), 50257));
  m.max_positions = f.number("max-position-embeddings", rule_of(&M::max_positions),
                             f.number("seq-length", rule_of(&Workload::sequence), 2048));
  m.norm = f.text("normalization", "LayerNorm") == "RMSNorm" ? NormKind::rms_norm : NormKind::layer_norm;
  m.norm_epsilon = f.real("norm-epsilon", rule_of(&M::norm_epsilon), 1e-5);
  const std::string position = f.text("position-embedding-type", "learned_absolute");
  m.position = position == "rope"   ? PositionKind::rotary
               : position == "none" ? PositionKind::none
                                    : PositionKind::learned;
  m.rotary_base = f.real("rotary-base", rule_of(&M::rotary_base), 10000.0);
  m.rotary_fraction = f.real("rotary-percent", rule_of(&M::rotary_fraction), 1.0);
  // Llama 3's rule and its other numbers are fixed there.
  if (f.has("use-rope-scaling"))
    m.rotary_scaling =
        RotaryScaling{RotaryScalingKind::llama3,
                      f.real("rope-scaling-factor", rule_of(&RotaryScaling::factor), 8.0), 1.0, 4.0, 8192};
  m.mlp_bias = m.attention_output_bias = !f.has("disable-bias-linear");
  m.qkv_bias = m.mlp_bias || f.has("add-qkv-bias");
  m.tied_embeddings = !f.has("untie-embeddings-and-output-weights");
  if (f.has("qk-layernorm")) m.query_key_norm = QueryKeyNorm::per_head;
  if (f.has("multi-latent-attention")) {
    m.attention = AttentionKind::latent;
    m.latent = latent_of(f);
    m.head_dim = m.latent->nope_head_dim + m.latent->rope_head_dim;
  }
  if (f.number("num-experts", between(0, rule_of(&MixtureOfExperts::experts).maximum), 0) > 0)
    m.moe = experts_of(f, m);
  m.attention_sinks = f.text("softmax-type", "vanilla") == "learnable";
  m.sliding_window = f.window();
  if (m.sliding_window && f.text("window-attn-skip-freq", "") == "2") m.sliding_window_interval = 2;
  m.next_token_layers = f.number("mtp-num-layers", rule_of(&M::next_token_layers), 0);
  return m;
}

Recompute recompute_of(const Flags& f) {
  if (f.has("recompute-activations")) return Recompute::selective;
  const std::string granularity = f.text("recompute-granularity", "");
  return granularity == "full"        ? Recompute::full
         : granularity == "selective" ? Recompute::selective
                                      : Recompute::none;
}

// Its first and last pipeline ranks may hold other numbers of layers than the rest, which hold as many each.
std::vector<int64_t> stages_with_own_ends(const ModelSpec& m, int64_t stages, int64_t first, int64_t last) {
  const int64_t others = stages - int64_t(first > 0) - int64_t(last > 0);
  std::vector<int64_t> counts;
  if (others > 0) counts = even_stages(m.layers - first - last, others);
  if (first > 0) counts.insert(counts.begin(), first);
  if (last > 0) counts.push_back(last);
  return counts;
}

void set_pipeline(const Flags& f, const ModelSpec& m, Imported& in) {
  Layout& l = in.layout;
  l.pipeline = f.number("pipeline-model-parallel-size", rule_of(&Layout::pipeline), 1);
  if (const std::string text = f.text("pipeline-model-parallel-layout", ""); !text.empty()) {
    const auto stages = decoder_layers_of_stages(text);
    if (!stages || int64_t(stages->size()) % l.pipeline != 0)
      f.refuse("pipeline-model-parallel-layout",
               fmt::format("stages such as Et*2|(tt|)*6L, as many for each of {} ranks", l.pipeline));
    l.layers_per_stage = *stages;
    l.chunks = int64_t(stages->size()) / l.pipeline;
  } else {
    l.chunks = f.number("num-virtual-stages-per-pipeline-rank", rule_of(&Layout::chunks), 1);
    const int64_t per_stage =
        f.number("num-layers-per-virtual-pipeline-stage", between(1, double(m.layers)), m.layers);
    if (f.has("num-layers-per-virtual-pipeline-stage"))
      l.chunks = std::max<int64_t>(1, m.layers / l.pipeline / per_stage);
    check_stages(l, m, f.at("pipeline-model-parallel-size"));
    const int64_t first = f.number("decoder-first-pipeline-num-layers", between(0, double(m.layers)), 0),
                  last =
                      f.number("decoder-last-pipeline-num-layers", between(0, double(m.layers - first)), 0);
    const bool own_ends = first + last > 0 && l.chunks == 1 && l.pipeline > 1;
    if (first + last > 0 && !own_ends)
      in.notes.emplace_back("layers of the first and last rank with virtual stages: stages taken as even");
    l.layers_per_stage =
        own_ends ? stages_with_own_ends(m, l.pipeline, first, last) : even_stages(m.layers, l.stages());
  }
  l.schedule = l.chunks > 1 ? "interleaved" : "1f1b";
  l.overlap_transfer = !f.has("no-overlap-p2p-communication");
}

void set_data_parallel(const Flags& f, Layout& l) {
  const std::string strategy = f.text("data-parallel-sharding-strategy", "no_shard");
  if (f.has("use-megatron-fsdp")) {
    l.zero = strategy == "optim_grads_params" ? 3 : strategy == "optim_grads" ? 2 : 1;
  } else if (f.has("use-distributed-optimizer")) {
    l.zero = 1;
  }
  l.overlap_gradient_reduce = f.has("overlap-grad-reduce");
  l.overlap_parameter_gather = f.has("overlap-param-gather");
  l.offload_optimizer = f.has("optimizer-cpu-offload");
}

}  // namespace

Imported import_megatron_core(const std::filesystem::path& file) {
  const Flags f(file);
  Imported in;
  in.model = model_of(f);
  Layout& l = in.layout;
  l.tensor = f.number("tensor-model-parallel-size", rule_of(&Layout::tensor), 1);
  l.sequence_parallel = f.has("sequence-parallel") && l.tensor > 1;
  l.context = f.number("context-parallel-size", rule_of(&Layout::context), 1);
  if (f.text("cp-comm-type", "p2p") == "a2a") l.context_method = ContextMethod::all_to_all;
  l.expert = f.number("expert-model-parallel-size", rule_of(&Layout::expert), 1);
  l.expert_tensor = f.number("expert-tensor-parallel-size", rule_of(&Layout::tensor), l.tensor);
  if (l.expert_tensor == l.tensor) l.expert_tensor = 0;
  l.micro_batch = f.number("micro-batch-size", rule_of(&Layout::micro_batch), 1);
  l.overlap_tensor = f.has("tp-comm-overlap");
  l.overlap_exchange = l.expert > 1 && f.has("overlap-moe-expert-parallel-comm");
  // Megatron-LM's default; what is padded already is not padded again.
  in.vocabulary_multiple = f.has("vocab-size") || !f.has("padded-vocab-size")
                               ? f.number("make-vocab-size-divisible-by", between(1, 1 << 20), 128)
                               : 1;
  in.fp8_head = f.has("fp8-output-proj");
  in.deduplicates_dispatch = f.text("moe-token-dispatcher-type", "allgather") == "flex";
  if (f.has("use-tp-pp-dp-mapping")) l.order = RankOrder::data_outermost;
  l.recompute = recompute_of(f);
  const bool scales_blocks = f.text("fp8-recipe", "delayed") == "mxfp8";
  l.precision = f.has("fp4-format")   ? Precision::nvfp4
                : f.has("fp8-format") ? (scales_blocks ? Precision::mxfp8 : Precision::fp8)
                : f.has("bf16")       ? Precision::bf16
                : f.has("fp16")       ? Precision::fp16
                                      : Precision::fp32;
  set_pipeline(f, *in.model, in);
  set_data_parallel(f, l);
  if (l.recompute == Recompute::full && f.text("recompute-method", "uniform") == "block") {
    const int64_t layers = f.number("recompute-num-layers", between(1, double(in.model->layers)), 1);
    for (const int64_t held : l.layers_per_stage) l.recomputed_layers.push_back(std::min(held, layers));
  }
  l.data = 0;
  in.workload.sequence = f.number("seq-length", rule_of(&Workload::sequence), in.model->max_positions);
  in.workload.global_batch =
      f.has("global-batch-size") ? f.number("global-batch-size", rule_of(&Workload::global_batch), 1) : 0;
  in.shard_groups = f.number("num-distributed-optimizer-instances", rule_of(&Layout::data), 1);
  for (const char* name : {"use-torch-fsdp2", "moe-layer-recompute"}) {
    if (f.has(name)) in.notes.push_back(fmt::format("--{} is not taken over", name));
  }
  const std::string skipped = f.text("window-attn-skip-freq", "2");
  if (skipped != "2")
    in.notes.push_back(fmt::format("--window-attn-skip-freq {}: all layers taken as windowed", skipped));
  check_imported(in, file.string());
  return in;
}

}  // namespace mpt::frameworks
