// SPDX-License-Identifier: Apache-2.0
#include "planner/validate/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <regex>
#include <sstream>

#include "base/error.h"
#include "core/layout.h"
#include "frameworks/megatron-core/pipeline_layout.h"
#include "models/zoo.h"

namespace mpt::planner {
namespace {

// One object of a record. A null is as good as absent; a wrong type or range is an error with its field.
class Fields {
 public:
  Fields(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json_.is_object()) wrong("", "an object");
  }

  const Json* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  Fields object(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr || !value->is_object()) wrong(key, "an object");
    return {*value, where_ + "/" + key};
  }
  std::optional<int64_t> whole(const char* key, int64_t least, int64_t most) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    const bool number = value->is_number();
    const double x = number ? value->get<double>() : 0.0;
    if (!number || std::floor(x) != x || x < double(least) || x > double(most))
      wrong(key, fmt::format("a whole number from {} to {}", least, most));
    return int64_t(x);
  }
  int64_t required(const char* key, int64_t least, int64_t most) const {
    const auto value = whole(key, least, most);
    if (!value) wrong(key, fmt::format("a whole number from {} to {}", least, most));
    return *value;
  }
  std::optional<double> positive(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    const double x = value->is_number() ? value->get<double>() : -1.0;
    if (!(x > 0.0 && x < 1e12)) wrong(key, "a positive number");
    return x;
  }
  std::optional<bool> flag(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_boolean()) wrong(key, "true or false");
    return value->get<bool>();
  }
  // Or by the name of what does it.
  std::optional<bool> flag_or_name(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr || !value->is_string()) return flag(key);
    return *value != "" && *value != "none" && *value != "off";
  }
  std::optional<std::string> text(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) wrong(key, "a text");
    return value->get<std::string>().substr(0, 4096);
  }
  std::string text_or(const char* key, const char* otherwise = "") const {
    return text(key).value_or(otherwise);
  }
  std::vector<std::string> texts(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return {};
    const bool fits = value->is_array() && value->size() <= 64 &&
                      std::all_of(value->begin(), value->end(), [](const Json& v) { return v.is_string(); });
    if (!fits) wrong(key, "a list of texts");
    return value->get<std::vector<std::string>>();
  }
  std::string dumped(const char* key) const {
    const Json* value = find(key);
    return value == nullptr ? "" : value->dump().substr(0, 65536);
  }

  [[noreturn]] void wrong(const std::string& key, const std::string& allowed) const {
    const Json* value = key.empty() ? &json_ : find(key.c_str());
    const std::string field = where_ + (key.empty() ? "" : "/" + key);
    throw UserError(Problem{field, value == nullptr ? "missing" : detail::describe_json(*value), allowed,
                            "see the form of a record in docs/validation.md"});
  }

 private:
  const Json& json_;
  std::string where_;
};

constexpr int64_t kMostSize = int64_t{1} << 28, kMostDegree = 10'000'000;

std::string lower(std::string text) {
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Where only a name was published.
std::optional<int64_t> zero_by_name(const std::string& sharding) {
  const std::string words = lower(sharding);
  static constexpr std::pair<const char*, int64_t> kNames[] = {
      {"zero-3", 3}, {"zero3", 3},  {"fsdp", 3},  {"full_shard", 3},           {"zero-2", 2},
      {"zero2", 2},  {"zero-1", 1}, {"zero1", 1}, {"distributed optimizer", 1}};
  for (const auto& [name, stage] : kNames) {
    if (mentions(words, name)) return stage;
  }
  return std::nullopt;
}

// {"1": 3, "2": 30}: how many operators are split how often. The degree of most of them.
std::optional<int64_t> degree_of_most(const Fields& stage, const char* key) {
  const Json* degrees = stage.find(key);
  if (degrees == nullptr) return std::nullopt;
  int64_t most = 0, degree = 0;
  const Fields operators = stage.object(key);
  for (const auto& [name, count] : degrees->items()) {
    const bool number = !name.empty() && name.size() < 8 &&
                        name.find_first_not_of("0123456789") == std::string::npos && name.front() != '0';
    if (!number) stage.wrong(key, "numbers of operators by degree, such as {\"2\": 30}");
    const int64_t n = operators.required(name.c_str(), 0, 1 << 20);
    if (n > most) degree = std::stoll(name);
    most = std::max(most, n);
  }
  return degree > 0 ? std::optional(degree) : std::nullopt;
}

template <class T>
T filled_in(RunRecord& run, const std::optional<T>& value, T otherwise, const char* field) {
  if (value) return *value;
  run.filled.push_back(fmt::format("{} = {}", field, otherwise));
  return otherwise;
}

// As the record says, or to a multiple of 128, which most do; Megatron-LM, for every tensor rank
// (Execution::vocabulary_multiple).
int64_t padded(int64_t vocab, const std::optional<int64_t>& multiple) {
  return padded_share(vocab, 1, multiple.value_or(128));
}

void note_groups(RunRecord& run) {
  const MixtureOfExperts& e = *run.model.moe;
  run.filled.push_back(fmt::format("model.moe.groups = {} of {}", e.groups_per_token, e.expert_groups));
}

// A gate of benchmarks that sends each token to experts that stand side by side (NVIDIA-NeMo/Automodel,
// FakeBalancedGate in nemo_automodel/components/moe/layers.py).
void set_fake_gate(RunRecord& run) {
  MixtureOfExperts& e = *run.model.moe;
  if (!mentions(lower(run.notes), "fake balanced") || e.experts % e.experts_per_token != 0) return;
  e.expert_groups = e.experts / e.experts_per_token;
  e.groups_per_token = 1;
  note_groups(run);
}

// What the form of a record has no fields for, from the zoo's model of that name: groups of experts, norms on
// queries and keys, and all that gpt-oss has beside.
void fill_from_zoo(RunRecord& run) {
  ModelSpec& m = run.model;
  const std::string name = lower(m.name);
  const std::vector<std::string> zoo = models::zoo_names();
  if (std::find(zoo.begin(), zoo.end(), name) == zoo.end()) return;
  const ModelSpec known = models::load_model(name);
  if (m.moe && known.moe && m.moe->experts == known.moe->experts &&
      m.moe->expert_groups < known.moe->expert_groups) {
    m.moe->expert_groups = known.moe->expert_groups;
    m.moe->groups_per_token = known.moe->groups_per_token;
    note_groups(run);
  }
  if (known.query_key_norm != m.query_key_norm) {
    m.query_key_norm = known.query_key_norm;
    run.filled.push_back("model: norms on queries and keys of " + known.name);
  }
  if (known.attention_sinks) {
    m.attention_sinks = true;
    m.sliding_window = known.sliding_window;
    m.sliding_window_interval = known.sliding_window_interval;
    m.qkv_bias = known.qkv_bias;
    m.attention_output_bias = known.attention_output_bias;
    m.mlp_bias = known.mlp_bias;
    m.activation_limit = known.activation_limit;
    m.rotary_scaling = known.rotary_scaling;
    run.filled.push_back("model: windows, sinks, biases, limits and rotary scaling of " + known.name);
  }
}

void read_experts(const Fields& fields, ModelSpec& m) {
  const Fields moe = fields.object("moe");
  MixtureOfExperts e;
  e.experts = moe.required("experts", 1, 65536);
  e.experts_per_token = moe.required("topk", 1, e.experts);
  e.expert_ffn_hidden = moe.required("expert_ffn", 1, 1 << 24);
  const int64_t shared = moe.whole("shared_experts", 0, 1024).value_or(0);
  e.shared_ffn_hidden = shared * moe.whole("shared_expert_ffn", 1, 1 << 24).value_or(e.expert_ffn_hidden);
  e.leading_dense_layers = std::min(moe.whole("dense_layers", 0, 100000).value_or(0), m.layers);
  e.layer_interval = moe.whole("moe_every", 1, 100000).value_or(1);
  m.moe = e;
}

void read_latent(const Fields& fields, ModelSpec& m) {
  const Fields mla = fields.object("mla");
  LatentAttention l;
  l.query_rank = mla.whole("q_lora_rank", 0, 1 << 20).value_or(0);
  l.key_value_rank = mla.required("kv_lora_rank", 1, 1 << 20);
  l.nope_head_dim = mla.required("qk_nope_head_dim", 0, 1 << 16);
  l.rope_head_dim = mla.required("qk_rope_head_dim", 0, 1 << 16);
  l.value_head_dim = mla.required("v_head_dim", 1, 1 << 16);
  m.attention = AttentionKind::latent;
  m.latent = l;
  m.head_dim = l.nope_head_dim + l.rope_head_dim;
}

void read_model(const Fields& f, RunRecord& run) {
  ModelSpec& m = run.model;
  m.name = f.text_or("name", "unnamed");
  m.layers = f.required("layers", 1, 100000);
  m.hidden = f.required("hidden", 1, 1 << 24);
  run.sequence = m.max_positions = f.required("seq_len", 1, kMostSize);
  // The vocabulary of GPT-2, padded, which most of the unnamed ones are.
  const auto multiple = f.whole("vocab_pad_multiple", 1, 1 << 20);
  run.vocabulary_is_padded = multiple.has_value();
  m.vocab = padded(filled_in<int64_t>(run, f.whole("vocab", 1, kMostSize), 51200, "model.vocab"), multiple);
  auto heads = f.whole("heads", 1, 1 << 16), head_dim = f.whole("head_dim", 1, 1 << 16);
  if (!heads && head_dim && m.hidden % *head_dim == 0) heads = m.hidden / *head_dim;
  if (!heads) {
    // BigScience's first runs all had 32 (bigscience-workshop/bigscience,
    // train/tr11-176B-ml/chronicles-prequel.md); otherwise heads of 128 where that divides the width, else
    // the largest below it.
    int64_t size = std::min<int64_t>(128, m.hidden);
    while (m.hidden % size != 0) --size;
    heads = mentions(run.framework, "BigScience") && m.hidden % 32 == 0 ? 32 : m.hidden / size;
    run.filled.push_back(fmt::format("model.heads = {}", *heads));
  }
  m.heads = *heads;
  m.head_dim = head_dim.value_or(std::max<int64_t>(1, m.hidden / m.heads));
  m.kv_heads = f.whole("kv_heads", 1, m.heads).value_or(m.heads);
  m.ffn_hidden = filled_in<int64_t>(run, f.whole("ffn_hidden", 1, 1 << 24), 4 * m.hidden, "model.ffn_hidden");
  m.gated_mlp = f.flag("gated_mlp").value_or(false);
  const std::string norm = lower(f.text_or("norm", "layernorm")),
                    position = lower(f.text_or("position", "learned"));
  m.norm = mentions(norm, "rms") ? NormKind::rms_norm : NormKind::layer_norm;
  m.norm_bias = !mentions(norm, "no bias");
  m.position = mentions(position, "rope") || mentions(position, "rotary") ? PositionKind::rotary
               : position == "alibi"                                      ? PositionKind::alibi
                                                                          : PositionKind::learned;
  m.tied_embeddings = f.flag("tied_embeddings").value_or(false);
  const bool bias = f.flag("bias").value_or(m.norm == NormKind::layer_norm && m.norm_bias && !m.gated_mlp);
  m.qkv_bias = m.attention_output_bias = m.mlp_bias = bias;
  m.activation = m.gated_mlp ? ActivationKind::silu : ActivationKind::gelu_tanh;
  if (f.find("activation") != nullptr && mentions(lower(f.text_or("activation")), "relu"))
    m.activation = ActivationKind::relu;
  if (f.find("attention_chunk") != nullptr) m.sliding_window = f.whole("attention_chunk", 1, kMostSize);
  m.next_token_layers = f.whole("mtp_layers", 0, 64).value_or(0);
  if (f.find("mla") != nullptr) read_latent(f, m);
  if (f.find("moe") != nullptr) read_experts(f, m);
  if (m.moe) set_fake_gate(run);
  fill_from_zoo(run);
  if (m.heads % m.kv_heads != 0) f.wrong("kv_heads", fmt::format("a divisor of the {} heads", m.heads));
}

void read_hardware(const Fields& f, RunRecord& run) {
  run.gpu = f.text_or("gpu");
  if (run.gpu.empty()) f.wrong("gpu", "the name of a device");
  run.gpus = f.required("gpus", 1, kMostDegree);
  run.gpus_per_node = f.whole("gpus_per_node", 1, 4096).value_or(8);
  run.fast_links = f.whole("nvlink_domain", 1, kMostDegree).value_or(run.gpus_per_node);
  run.inter_node = f.text_or("inter_node");
  run.profile = f.text_or("profile");
}

// Megatron-LM's list of what each virtual stage holds, which makes their number, too.
void read_pipeline_layout(const Fields& f, RunRecord& run) {
  const Json* options = f.find("options");
  if (options == nullptr || !options->is_object() || !run.pipeline) return;
  const auto text = Fields(*options, "/layout/options").text("pipeline-model-parallel-layout");
  const auto layers = frameworks::decoder_layers_of_stages(text.value_or("?"));
  if (!layers || int64_t(layers->size()) % *run.pipeline != 0) return;
  if (std::accumulate(layers->begin(), layers->end(), int64_t{0}) != run.model.layers) return;
  run.layers_per_stage = *layers;
  run.chunks = int64_t(layers->size()) / *run.pipeline;
  if (*run.chunks > 1) run.schedule = "interleaved";
}

void read_layout(const Fields& f, RunRecord& run) {
  run.tensor = f.whole("tp", 1, kMostDegree);
  run.pipeline = f.whole("pp", 1, kMostDegree);
  run.chunks = f.whole("vpp", 1, 100000);
  run.context = f.whole("cp", 1, kMostDegree);
  run.expert = f.whole("ep", 1, kMostDegree);
  run.expert_tensor = f.whole("etp", 1, kMostDegree);
  run.data = f.whole("dp", 1, kMostDegree);
  run.micro_batch = f.whole("micro_batch", 1, 1 << 24);
  run.zero = f.whole("zero_stage", 0, 3);
  run.global_batch = f.required("global_batch", 1, kMostSize);
  run.sequence_parallel = f.flag("sequence_parallel");
  run.precision = f.text_or("precision", "bf16");
  run.schedule = lower(f.text_or("schedule"));
  run.sharding = f.text_or("sharding");
  if (!run.zero) run.zero = zero_by_name(run.sharding);
  run.overlap = f.text_or("overlap");
  run.context_method = f.text_or("cp_comm");
  run.recompute = f.text("recompute");
  run.recompute_modules = f.texts("recompute_modules");
  run.fused_loss = f.flag("cross_entropy_fusion");
  run.async_tensor = f.flag("async_tp");
  run.compiled = f.flag_or_name("compile");
  run.ends_one_layer_less = f.flag("first_last_stage_one_layer_less");
  run.embedding_counts_as_layer = mentions(f.text_or("pp_partition"), "embedding");
  run.recomputed_layers_per_stage = f.whole("recompute_layers_per_stage", 0, 100000);
  run.options = f.dumped("options");
  if (const Json* execution = f.find("execution")) run.execution = *execution;
  run.overlap_gradient_reduce = f.flag("overlap_gradient_reduce");
  run.overlap_parameter_gather = f.flag("overlap_parameter_gather");
  run.overlap_tensor = f.flag("overlap_tensor");
  run.overlap_transfer = f.flag("overlap_transfer");
  run.overlap_exchange = f.flag("overlap_exchange");
  read_pipeline_layout(f, run);
  const Json* stages = f.find("stages");
  if (stages == nullptr) return;
  if (!stages->is_array() || stages->size() > 256) f.wrong("stages", "a list of at most 256 stages");
  for (size_t s = 0; s < stages->size(); ++s) {
    const Fields stage((*stages)[s], fmt::format("/layout/stages/{}", s));
    const int64_t operators = stage.required("ops", 1, 1 << 20),
                  gpus = stage.required("gpus", 1, kMostDegree);
    const int64_t tensor = degree_of_most(stage, "tp").value_or(gpus);
    run.stages.push_back({gpus, operators, stage.whole("recompute_ops", 0, operators).value_or(operators),
                          tensor, degree_of_most(stage, "dp").value_or(std::max<int64_t>(1, gpus / tensor))});
  }
}

}  // namespace

namespace {

// "recompute-modules": "[layernorm moe_act]", as Megatron-LM's tests write lists.
std::vector<std::string> modules_among(const std::string& options) {
  static const std::regex list(R"re("recompute-modules":"\[([a-z_ ]*)\]")re");
  std::smatch found;
  if (!finds(options, found, list)) return {};
  std::istringstream words(found[1].str());
  return {std::istream_iterator<std::string>(words), {}};
}

}  // namespace

bool says(const std::string& text, const std::regex& phrase, const std::source_location& reader) {
  static const std::regex denied_before(R"(\b([Nn]o|[Nn]ot|[Ww]ithout) (the )?$)"),
      denied_behind(R"(^s?:? ?((is|was|are|were) )?(off|not|disabled)\b)");
  constexpr ptrdiff_t kFarthest = 16;
  for (std::sregex_iterator found(text.begin(), text.end(), phrase), end; found != end; ++found) {
    const auto first = text.begin() + found->position(), last = first + found->length();
    const auto before = first - std::min(first - text.begin(), kFarthest),
               behind = last + std::min(text.end() - last, kFarthest);
    if (!std::regex_search(before, first, denied_before) && !std::regex_search(last, behind, denied_behind)) {
      WordTrace::note(found->str(), reader);
      return true;
    }
  }
  return false;
}

RunRecord read_run_record(const Json& json, const std::string& where) {
  const Fields f(json, where);
  RunRecord run;
  run.id = f.text_or("id", where.c_str());
  run.family = f.text_or("family", "unnamed");
  run.framework = f.text_or("framework");
  run.notes = f.text_or("notes");
  run.source = f.dumped("source");
  const std::string words = run.source + " " + run.notes;
  static const std::regex page(R"(\.(md|mdx|rst)\b)");
  run.released = named_month(words);
  run.released_at_the_latest =
      std::regex_search(run.source, page) && !named_release(words) && !named_month(run.notes);
  if (const auto date = f.text("date")) {
    run.released = parse_month(*date);
    run.released_at_the_latest = false;
    if (!run.released) f.wrong("date", "a month such as \"2025-06\"");
  }
  read_model(f.object("model"), run);
  read_hardware(f.object("hardware"), run);
  read_layout(f.object("layout"), run);
  const Fields measured = f.object("measured");
  run.measured_s = measured.positive("iter_time_s");
  run.measured_gib = measured.positive("peak_mem_gib");
  run.out_of_memory = measured.flag("out_of_memory").value_or(false);
  if (!run.measured_s) {
    // Published as a rate instead: tokens say the same.
    if (const auto rate = measured.positive("tokens_per_s_per_gpu"))
      run.measured_s = double(run.global_batch) * double(run.sequence) / (*rate * double(run.gpus));
  }
  // "selective" there: a share of the blocks (foundation-model-stack/fms-fsdp, selective_checkpointing).
  run.recomputes_some_layers = mentions(run.framework, "fms-fsdp") && run.recompute == "selective";
  run.options += f.dumped("recipe");
  if (run.recompute_modules.empty() && f.find("recipe") != nullptr)
    run.recompute_modules = f.object("recipe").texts("recompute_modules");
  if (run.recompute_modules.empty()) run.recompute_modules = modules_among(run.options);
  return run;
}

}  // namespace mpt::planner
