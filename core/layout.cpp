// SPDX-License-Identifier: Apache-2.0
#include "core/layout.h"

#include <numeric>

#include "base/error.h"

namespace mpt {
namespace {

std::optional<Rejection> check_stages(const ModelSpec& model, const Layout& layout) {
  const auto& stages = layout.layers_per_stage;
  if (static_cast<int64_t>(stages.size()) != layout.stages())
    return Rejection{
        "stages", -1, double(layout.stages()), double(stages.size()),
        fmt::format("layers_per_stage has {} entries for {} stages", stages.size(), layout.stages())};
  const int64_t sum = std::accumulate(stages.begin(), stages.end(), int64_t{0});
  if (const int64_t layers = model.layers.count(); sum != layers)
    return Rejection{"stages", -1, double(layers), double(sum),
                     fmt::format("layers_per_stage adds up to {}, the model has {} layers", sum, layers)};
  for (size_t s = 0; s < stages.size(); ++s) {
    // An end stage may hold only the embedding or the head; one in the middle must hold a layer.
    if (stages[s] < 1 && s > 0 && s + 1 < stages.size())
      return Rejection{"unplanned", int(s), 1, double(stages[s]), fmt::format("stage {} holds no layer", s)};
  }
  return std::nullopt;
}

int64_t ranks_of_stage(const Layout& l) { return l.tensor * l.context * l.data; }

// Heads of a layer: of attention, or of another mixer and its keys.
struct Heads {
  int64_t heads, keys;
};

// The heads that an all-to-all over context ranks cannot divide, or nothing.
std::optional<Heads> undivided_heads(const ModelSpec& model, const Layout& l) {
  if (l.context == 1) return std::nullopt;
  const bool ring = l.context_method != ContextMethod::all_to_all;  // for attention; mixers exchange heads
  const int64_t ranks = l.tensor * l.context;
  for (const auto& [name, kind] : model.layers.kinds) {
    std::vector<Heads> all;
    if (kind.attention && !ring) all.push_back({kind.attention->heads, kind.attention->kv_heads});
    if (kind.linear) all.push_back({kind.linear->heads, kind.linear->key_heads});
    for (const Heads& h : all)
      if (h.heads % ranks != 0 || h.keys % ranks != 0) return h;
  }
  return std::nullopt;
}

// Rules other than divisibility of the model or the batch. A search checks millions of layouts, so texts are
// made only for a broken rule.
std::optional<Rejection> check_sharding(const ModelSpec& model, const Layout& layout) {
  const int64_t shard = layout.zero == 0 ? 1 : layout.shard;
  const bool experts = model.moe() != nullptr;
  const auto refuse = [](const std::string& reason) { return Rejection{"layout", -1, 0, 0, reason}; };
  if (layout.zero == 0 && layout.shard != 1)
    return refuse(fmt::format("shard {} without ZeRO", layout.shard));
  if (layout.replicas() % shard != 0)
    return refuse(
        fmt::format("{} data x context ranks do not divide by shard {}", layout.replicas(), layout.shard));
  if (ranks_of_stage(layout) % (layout.expert * layout.expert_split()) != 0)
    return refuse(fmt::format("{} ranks of a stage do not divide by expert {} x expert_tensor {}",
                              ranks_of_stage(layout), layout.expert, layout.expert_split()));
  if (!experts && (layout.expert > 1 || layout.expert_split() != layout.tensor))
    return refuse("expert parallel without experts");
  if (experts && layout.expert > 1 && layout.tensor > 1 && !layout.sequence_parallel)
    return refuse("MPT plans expert parallel beside tensor parallel with sequence parallel alone");
  if (experts && layout.expert == 1 && layout.expert_split() != layout.tensor)
    return refuse("expert_tensor other than tensor needs expert parallel");
  if (layout.sequence_parallel && layout.tensor == 1)
    return refuse("sequence parallel without tensor parallel");
  if (const auto heads = undivided_heads(model, layout))
    return refuse(fmt::format("{} heads, {} for keys, do not divide by tensor x context {}", heads->heads,
                              heads->keys, layout.tensor * layout.context));
  const bool counts_stages = int64_t(layout.recomputed_layers.size()) == layout.stages();
  if (!layout.recomputed_layers.empty() && (layout.recompute != Recompute::full || !counts_stages))
    return refuse("recomputed_layers needs full recompute and one number per stage");
  return std::nullopt;
}

std::optional<Rejection> check_workload(const Workload& workload) {
  if (workload.global_batch >= 1 && workload.sequence >= 1) return std::nullopt;
  return Rejection{
      "divides", -1, 1, 0,
      fmt::format("{} sequences of {} tokens to train on", workload.global_batch, workload.sequence)};
}

// The quantity of a layer that a degree must divide; 0: the layer has none.
struct LayerRule {
  const char* what;
  int64_t (*amount)(const LayerKind& k);
  bool shared = false;  // several ranks may share one, if the framework supports it
};

const LayerRule kTensorRules[] = {
    {"heads", [](const LayerKind& k) { return k.attention ? k.attention->heads : 0; }},
    {"key-value heads", [](const LayerKind& k) { return k.attention ? k.attention->kv_heads : 0; }, true},
    {"mixer heads", [](const LayerKind& k) { return k.linear ? k.linear->heads : 0; }},
    {"mixer key heads", [](const LayerKind& k) { return k.linear ? k.linear->key_heads : 0; }},
    {"MLP width", [](const LayerKind& k) { return k.mlp ? k.mlp->ffn_hidden : 0; }},
    {"shared expert width", [](const LayerKind& k) { return k.moe ? k.moe->shared_ffn_hidden : 0; }},
};
const LayerRule kExperts{"experts", [](const LayerKind& k) { return k.moe ? k.moe->experts : 0; }};
const LayerRule kExpertWidth{"expert width",
                             [](const LayerKind& k) { return k.moe ? k.moe->expert.ffn_hidden : 0; }};

Rejection does_not_divide(const char* what, int64_t amount, const char* by_what, int64_t by) {
  return Rejection{"divides", -1, double(by), double(amount),
                   fmt::format("{} {} does not divide by {} {}", what, amount, by_what, by)};
}

std::optional<Rejection> check_layers(const ModelSpec& model, const LayerRule& rule, const char* by_what,
                                      int64_t by) {
  if (by == 1) return std::nullopt;
  const LayerKind* const broken = model.layers.first([&](const LayerKind& kind) {
    const int64_t amount = rule.amount(kind);
    return amount % by != 0 && !(rule.shared && by % amount == 0);
  });
  if (broken == nullptr) return std::nullopt;
  return does_not_divide(rule.what, rule.amount(*broken), by_what, by);
}

std::optional<Rejection> check_stage_count(const ModelSpec& model, int64_t stages) {
  const int64_t layers = model.layers.count();
  if (stages == 1 || stages <= layers + 2) return std::nullopt;
  return Rejection{"stages", -1, double(stages), double(layers),
                   fmt::format("{} stages for {} layers", stages, layers)};
}

}  // namespace

int64_t micro_batches(const Layout& layout, const Workload& workload) {
  const int64_t per_micro_step = layout.data * layout.micro_batch;
  MPT_CHECK(workload.global_batch % per_micro_step == 0, "batch {} does not divide by {}",
            workload.global_batch, per_micro_step);
  return workload.global_batch / per_micro_step;
}

std::vector<StageContent> stage_contents(const ModelSpec& model, const Layout& layout) {
  std::vector<StageContent> contents;
  int64_t first = 0;
  for (const int64_t count : layout.layers_per_stage) {
    contents.push_back({first, count, contents.empty(), false});
    first += count;
  }
  MPT_CHECK(!contents.empty() && first == model.layers.count(), "stages hold {} of {} layers", first,
            model.layers.count());
  contents.back().has_head = true;
  return contents;
}

std::vector<int64_t> even_stages(int64_t layers, int64_t stages) {
  std::vector<int64_t> split(static_cast<size_t>(stages), layers / stages);
  const int64_t remainder = layers % stages;
  for (int64_t i = 0; i < remainder; ++i) ++split[static_cast<size_t>((stages - remainder) / 2 + i)];
  return split;
}

std::optional<Rejection> check_degrees(const Layout& layout) {
  const struct {
    const char* name;
    int64_t least, value;
  } degrees[] = {{"tensor", 1, layout.tensor},     {"context", 1, layout.context},
                 {"pipeline", 1, layout.pipeline}, {"data", 1, layout.data},
                 {"chunks", 1, layout.chunks},     {"micro_batch", 1, layout.micro_batch},
                 {"expert", 1, layout.expert},     {"expert_tensor", 0, layout.expert_tensor},
                 {"shard", 1, layout.shard}};
  constexpr int64_t kMostOfOne = std::max<int64_t>(kMostRanks, 1 << 24);
  for (const auto& [name, least, value] : degrees) {
    if (value >= least && value <= kMostOfOne) continue;
    return Rejection{"layout", -1, double(least), double(value),
                     fmt::format("{} {} is not between {} and {}", name, value, least, kMostOfOne)};
  }
  int64_t ranks = 1;
  for (const int64_t degree : {layout.tensor, layout.context, layout.pipeline, layout.data}) {
    ranks *= degree;  // both below 2^25
    if (ranks > kMostRanks)
      return Rejection{"layout", -1, double(ranks), double(kMostRanks),
                       fmt::format("more than {} ranks", kMostRanks)};
  }
  return std::nullopt;
}

std::optional<Rejection> check_division(const ModelSpec& model, const Degrees& d, const Workload& workload) {
  for (const LayerRule& rule : kTensorRules)
    if (auto rejection = check_layers(model, rule, "tensor", d.tensor)) return rejection;
  // Causal work is balanced over context ranks by giving each two pieces of the sequence.
  if (d.context > 1 && workload.sequence % (2 * d.context) != 0)
    return does_not_divide("sequence", workload.sequence, "2 x context", 2 * d.context);
  if (workload.global_batch % d.data != 0)
    return does_not_divide("global batch", workload.global_batch, "data", d.data);
  return check_stage_count(model, d.pipeline);
}

std::optional<Rejection> check_layout(const ModelSpec& model, const Layout& layout,
                                      const Workload& workload) {
  if (auto rejection = check_degrees(layout)) return rejection;
  if (auto rejection = check_workload(workload)) return rejection;
  if (auto rejection = check_division(model, layout.degrees(), workload)) return rejection;
  if (auto rejection = check_layers(model, kExperts, "expert", layout.expert)) return rejection;
  if (auto rejection = check_layers(model, kExpertWidth, "expert_tensor", layout.expert_split()))
    return rejection;
  const int64_t pieces = layout.sequence_parallel ? layout.tensor * layout.context : 1;
  if (workload.sequence % pieces != 0)
    return does_not_divide("sequence", workload.sequence, "tensor x context", pieces);
  if (const int64_t samples = layout.data * layout.micro_batch; workload.global_batch % samples != 0)
    return does_not_divide("global batch", workload.global_batch, "data x micro_batch", samples);
  if (auto rejection = check_stage_count(model, layout.stages())) return rejection;
  if (auto rejection = check_sharding(model, layout)) return rejection;
  return check_stages(model, layout);
}

int64_t element_bytes(Precision precision) { return precision == Precision::fp32 ? 4 : 2; }

int64_t recomputed_layers(const Layout& layout, size_t s, int64_t layers) {
  if (layout.recompute != Recompute::full) return 0;
  return layout.recomputed_layers.empty() ? layers : std::min(layers, layout.recomputed_layers[s]);
}

bool recomputes_partly(const Layout& l) {
  return l.recompute == Recompute::full && !l.recomputed_layers.empty() &&
         l.recomputed_layers != l.layers_per_stage;
}

int64_t gradient_element_bytes(const Layout& layout) {
  const Execution& e = layout.execution;
  return layout.training->bf16_gradients ? 2 : e.states.gradient_bytes > 0 ? e.states.gradient_bytes : 4;
}

std::string layout_name(const Layout& l) {
  std::string name = fmt::format("tp{}", l.tensor);
  if (l.sequence_parallel) name += "+sp";
  if (l.context > 1)
    name += fmt::format(" cp{}{}", l.context, l.context_method == ContextMethod::all_to_all ? "a2a" : "");
  name += fmt::format(" pp{} dp{}", l.pipeline, l.data);
  if (l.expert > 1) name += fmt::format(" ep{}", l.expert);
  if (l.expert > 1 && l.expert_split() != l.tensor) name += fmt::format(" etp{}", l.expert_split());
  if (l.zero > 0) name += fmt::format(" zero{}", l.zero);
  if (l.zero > 0 && l.shard < l.replicas()) name += fmt::format("/{}", l.shard);
  name += fmt::format(" mbs{}", l.micro_batch);
  if (l.pipeline > 1) name += " " + l.schedule;
  if (l.chunks > 1) name += fmt::format(" x{}", l.chunks);
  if (l.order == RankOrder::data_outermost && l.pipeline > 1 && l.data > 1) name += " dp-outermost";
  if (l.offload_optimizer) name += " offload";
  if (l.recompute == Recompute::none) return name;
  if (l.recompute == Recompute::selective) {
    const std::vector<std::string> modules = recompute_modules_of(l.selective);
    if (modules != recompute_modules_of(SelectiveRecompute{}))
      return fmt::format("{} recompute={}", name, joined(modules, "+"));
  }
  if (l.recomputed_layers.empty()) return name + " recompute=" + enum_name(l.recompute);
  const auto [fewest, most] = std::minmax_element(l.recomputed_layers.begin(), l.recomputed_layers.end());
  return name + (*fewest == *most ? fmt::format(" recompute={}/stage", *most)
                                  : fmt::format(" recompute={}-{}/stage", *fewest, *most));
}

std::span<const RecomputeModule> recompute_modules() {
  static constexpr RecomputeModule kModules[] = {
      {"core_attn", &SelectiveRecompute::core},
      {"layernorm", &SelectiveRecompute::norms},
      {"mla_up_proj", &SelectiveRecompute::latent},
      {"moe_act", &SelectiveRecompute::expert_activation},
      {"mlp", &SelectiveRecompute::mlp},
      {"moe", &SelectiveRecompute::experts},
      {"shared_experts", &SelectiveRecompute::shared_experts},
      {"gdn_norm_out", &SelectiveRecompute::delta_norm},
      {"mhc", &SelectiveRecompute::streams},
  };
  return kModules;
}

void set_recompute_modules(const std::vector<std::string>& names, SelectiveRecompute& selective) {
  for (const auto& module : recompute_modules()) selective.*module.flag = contains(names, module.name);
}

std::vector<std::string> recompute_modules_of(const SelectiveRecompute& selective) {
  const auto is_on = [&](const RecomputeModule& module) { return selective.*module.flag; };
  return mapped_if<std::string>(recompute_modules(), is_on, &RecomputeModule::name);
}

}  // namespace mpt
