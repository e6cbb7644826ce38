// SPDX-License-Identifier: Apache-2.0
#include "frameworks/supports/supports.h"

#include <fmt/ranges.h>

#include <numeric>

#include "core/schedule_catalog.h"
#include "frameworks/asked.h"
#include "frameworks/export.h"
#include "models/value_map.h"

namespace mpt::frameworks {
namespace {

std::optional<Rejection> refuse(const Framework& framework, const char* constraint, const std::string& what) {
  return Rejection{constraint, -1, 0.0, 0.0, framework.title + " " + what};
}

// `sources` documents parts that the framework has and MPT does not plan.
std::optional<Rejection> refuse_unplanned(const Framework& framework, const char* constraint,
                                          const char* ability, const std::string& what) {
  const auto source = framework.sources.find(ability);
  if (source == framework.sources.end()) return refuse(framework, constraint, "has no " + what);
  return Rejection{"unplanned", -1, 0.0, 0.0,
                   fmt::format("MPT plans no {} for {} ({})", what, framework.title, source->second)};
}

template <class E>
std::string words(E value) {
  return replaced(enum_name(value), '_', ' ');
}

// Classes of a package below the framework know nothing of its groups of experts.
bool spreads_type(const Framework& framework, const std::string& type) {
  const Asked* const asked = asked_of(framework);
  return asked == nullptr || asked->registries.size() < 2 ||
         !asked->registries.front().place_of(type).empty();
}

// What the rules of a split look at, and which of them is broken. Rules whose switches a search tries by
// itself come last: the first that is broken is the one nearest to what was asked for.
struct SplitRules {
  const Framework& framework;
  const ModelSpec& model;
  const Layout& layout;
  const Workload& workload;
  const Abilities& can = framework.abilities;
  const bool tensor = layout.tensor > 1, context = layout.context > 1, pipeline = layout.pipeline > 1;
  const bool spreads = layout.expert > 1;
  const int64_t split = layout.expert_split();

  std::optional<Rejection> no(const char* constraint, const std::string& what) const {
    return refuse(framework, constraint, what);
  }

  // Tokens of a sample and sizes of the layers' products on one rank.
  std::vector<int64_t> product_sizes() const {
    const Attention& attention = model.attention();
    const int64_t ranks = layout.tensor;
    return {workload.sequence / layout.context, model.hidden, attention.heads * attention.head_dim / ranks,
            std::max<int64_t>(1, attention.kv_heads / ranks) * attention.head_dim,
            model.mlp().ffn_hidden / ranks};
  }

  std::optional<models::Value> lacks_for_spreading() const {
    if (can.cannot_spread.empty()) return std::nullopt;
    const models::Values values = models::values_of(model);
    for (const models::Value value : can.cannot_spread)
      if (const Json* found = find_value(values, value); found != nullptr && *found != Json(false))
        return value;
    return std::nullopt;
  }

  std::optional<Rejection> sizes() const {
    const auto is_shared = [&](const LayerKind& k) {
      return k.attention && k.attention->kv_heads < layout.tensor;
    };
    if (tensor && !can.shares_heads && model.layers.any(is_shared))
      return no("tensor", fmt::format("does not split {} key-value heads over {} tensor ranks",
                                      model.layers.first(is_shared)->attention->kv_heads, layout.tensor));
    const int64_t pieces = 2 * layout.context * layout.tensor;
    if (can.sequence_divides_by_tensor && pieces > 2 && workload.sequence % pieces != 0)
      return no("sequence",
                fmt::format("needs a sequence that divides by 2 x context x tensor = {}", pieces));
    if (layout.precision != Precision::nvfp4) return std::nullopt;
    const std::vector<int64_t> products = product_sizes();
    if (any_of(products, [&](int64_t n) { return n % can.nvfp4_multiple != 0; }))
      return no("precision", fmt::format("needs multiples of {} as sizes of nvfp4 products; a rank has {}",
                                         can.nvfp4_multiple, fmt::join(products, ", ")));
    return std::nullopt;
  }

  // The longest position of a rank's tokens decides. In a ring that of the two middle pieces is the shortest.
  std::optional<Rejection> positions() const {
    const int64_t all = workload.sequence, ranks = layout.context;
    const bool ring = layout.context_method == ContextMethod::ring;
    const int64_t least = ring ? (ranks + 1) * all / (2 * ranks) : all / ranks;
    const auto are_apart = [&](const LayerKind& k) {
      const RotaryScaling* const s = k.attention ? scaling_of(*k.attention) : nullptr;
      if (s == nullptr || s->original_positions >= all) return false;
      return s->kind == RotaryScalingKind::dynamic ||
             (s->kind == RotaryScalingKind::longrope && least <= s->original_positions);
    };
    if (!context || !can.rotates_by_rank || !model.layers.any(are_apart)) return std::nullopt;
    return no("trains wrong",
              "trains wrong: ranks choose frequencies of rotary positions by the longest position that each "
              "sees (run: findings/ulysses_ranks_rotate_longrope_apart.sh)");
  }

  std::optional<Rejection> experts() const {
    if (spreads && !can.expert) return no("expert", "has no expert parallelism");
    if (spreads && split != layout.tensor && can.expert_split == ExpertSplit::as_tensor)
      return no("expert", "splits experts as it splits dense layers");
    if (spreads && split > 1 && can.expert_split == ExpertSplit::whole)
      return no("expert", "keeps each expert whole on one rank");
    if (spreads && !spreads_type(framework, model.type))
      return no("expert", "spreads experts in its own classes of models alone");
    const auto lacks = spreads ? lacks_for_spreading() : std::nullopt;
    if (!lacks) return std::nullopt;
    return no("expert", fmt::format("does not spread experts of models with {}", models::words_of(*lacks)));
  }

  std::optional<Rejection> switches() const {
    if (layout.overlap_tensor && !can.overlap_tensor)
      return no("overlap", "does not overlap tensor-parallel collectives");
    if (layout.overlap_exchange && !can.overlap_exchange)
      return no("overlap", "does not overlap the exchange of tokens with experts");
    if (layout.sequence_parallel && can.sequence_parallel == SequenceParallelRule::none)
      return no("sequence parallel", "has no sequence parallelism");
    if (context && !contains(can.context_methods, layout.context_method))
      return no("context", fmt::format("has no {} context parallelism", enum_name(layout.context_method)));
    if (auto r = positions()) return r;
    if (!pipeline || layout.data == 1) return std::nullopt;
    if (!contains(can.orders, layout.order))
      return no("order", fmt::format("does not number ranks {}", enum_name(layout.order)));
    if (layout.order == RankOrder::data_outermost && layout.expert_replicas() != layout.data &&
        !can.experts_in_any_order)
      return no("order", layout.expert > 1
                             ? "needs as many replicas of experts as of the rest where data is outermost"
                             : "has no context parallelism where data is outermost");
    return std::nullopt;
  }
};

bool takes(MicroBatchRule rule, int64_t ranks, int64_t micro_batches) {
  using R = MicroBatchRule;
  const int64_t rounds = std::max<int64_t>(1, micro_batches / ranks);
  return rule == R::any || (rule == R::at_least_ranks && micro_batches >= ranks) ||
         (rule == R::multiple_of_ranks && micro_batches % ranks == 0) ||
         (rule == R::whole_rounds && micro_batches % rounds == 0) ||
         (rule == R::full_rounds && micro_batches >= ranks && micro_batches % rounds == 0) ||
         (rule == R::at_least_two_ranks && micro_batches >= 2 * ranks);
}

const char* words(MicroBatchRule rule) {
  constexpr const char* kWords[] = {
#include "generated/MicroBatchWords.inc"
  };
  return kWords[size_t(rule)];
}

// Whether the replicas that share states are whole groups of context and expert ranks, and part of the data
// ranks among them where these are divided.
bool holds_groups(const Layout& l, const Sharing& s) {
  if (s.shard % l.context != 0 || (s.shard < l.replicas() && s.shard == l.context)) return false;
  return l.expert == 1 || s.shard * l.tensor % (l.expert * l.expert_split()) == 0;
}

std::optional<Rejection> supports_recomputed_layers(const Framework& framework, const Layout& l) {
  const bool partial = recomputes_partly(l);
  if (auto r = supports_recompute(framework, l.recompute, partial)) return r;
  const PartialRecompute rule = framework.abilities.partial_recompute;
  if (!partial || rule == PartialRecompute::any || level_of(rule, l)) return std::nullopt;
  return refuse(framework, "recompute",
                rule == PartialRecompute::same_count ? "recomputes the same number of layers in every stage"
                                                     : "recomputes the first layer and every n-th after it");
}

// Communication of the layout that is not overlapped, though the framework always overlaps it.
std::optional<Rejection> supports_overlaps(const Framework& framework, const Layout& l) {
  const bool gathers = l.zero > 0 && l.replicas() > 1;
  for (const auto& [beside, what] :
       {std::pair{l.overlap_gradient_reduce || !l.reduces_gradients(), AlwaysBeside::gradient_reduce},
        {l.overlap_parameter_gather || !gathers, AlwaysBeside::parameter_gather},
        {l.overlap_transfer || l.pipeline == 1, AlwaysBeside::transfer}})
    if (!beside && contains(framework.abilities.always_overlaps, what))
      return refuse(framework, "overlap", fmt::format("overlaps {} with compute, always", words(what)));
  return std::nullopt;
}

// A rule of sharing that is broken. Its text is made where somebody reads it: a search asks for thousands of
// layouts.
struct Broken {
  const char* constraint = nullptr;  // nothing: no rule is broken
  const char* what = "";             // "{}" is the number
  int64_t number = 0;

  explicit operator bool() const { return constraint != nullptr; }
};

// ZeRO stages, as the layout has replicas to share states out over.
Broken zero_rule(const Abilities& a, const Layout& l, const Sharing& s) {
  const bool alone = l.tensor == 1 && l.pipeline == 1 && l.context == 1;
  if (s.offload && a.zero_with_offload.empty())
    return {"offload", "has no offload of optimizer states alone"};
  if (l.pipeline > 1 && contains(a.unplanned_zero_in_pipeline, s.zero))
    return {"unplanned", "may have ZeRO {} with pipeline parallelism, which MPT does not plan", s.zero};
  if (!contains(l.pipeline > 1 ? a.zero_in_pipeline : a.zero, s.zero))
    return {"zero", l.pipeline > 1 ? "has no ZeRO {} with pipeline parallelism" : "has no ZeRO {}", s.zero};
  if (s.zero == 0 && a.plain_replicas_alone && !alone)
    return {"zero", "combines plain replicas with no other parallelism"};
  return {};
}

// Newton-Schulz steps need whole matrices: ranks own some each, and what backward shares out is pieces.
Broken muon_rule(const Abilities& a, const Sharing& s) {
  if (s.zero > 1 && !a.trains_unwritten.contains(TrainingFeature::muon_on_shares))
    return {"zero", "updates whole matrices with Muon, not the shares of ZeRO 2 and 3"};
  if (s.offload) return {"offload", "has no Muon in the host's memory"};
  return {};
}

// States that part of the replicas share out.
Broken shard_group_rule(const Abilities& a, const Layout& l, const Sharing& s) {
  if (!contains(a.zero_with_shard_groups, s.zero))
    return a.zero_with_shard_groups.empty()
               ? Broken{"zero", "has no hybrid sharding with ZeRO {}", s.zero}
               : Broken{"unplanned", "may have hybrid sharding with ZeRO {}, which MPT does not plan",
                        s.zero};
  if (l.expert > 1 && !a.shard_groups_cut_experts && l.expert_replicas() % (l.replicas() / s.shard) != 0)
    return {"zero", "needs shard groups that divide the replicas of experts"};
  return {};
}

// FSDP cuts each expert's matrices alike along their second dimension.
bool cuts_experts_unevenly(const ModelSpec& model, const Layout& l, const Sharing& s) {
  if (l.expert == 1 || s.zero == 0) return false;
  const auto shares = s.shard == l.replicas() ? l.expert_replicas() : std::gcd(s.shard, l.expert_replicas());
  return model.hidden % shares != 0 || model.moe()->expert.ffn_hidden % shares != 0;
}

bool gathers_alone(const Layout& l) { return l.overlap_parameter_gather && !l.overlap_gradient_reduce; }

Broken sharing_rule(const Abilities& a, const ModelSpec& model, const Layout& l, const Sharing& s) {
  // With one replica there is nothing to share out.
  const bool replicates = l.reduces_gradients() && l.replicas() > 1;
  Broken broken;
  if (replicates) broken = zero_rule(a, l, s);
  if (!broken && l.training->optimizer == OptimizerKind::muon) broken = muon_rule(a, s);
  if (!broken && s.zero > 0 && s.shard < l.replicas()) broken = shard_group_rule(a, l, s);
  if (broken) return broken;
  if (s.zero > 0 && gathers_alone(l) && !a.gather_overlap_alone)
    return {"overlap", "overlaps parameter gathering only beside gradient reduction"};
  if (a.shards_hold_groups && s.zero > 0 && !holds_groups(l, s))
    return {"zero", "shares states out over whole groups of context and expert ranks, not over {} replicas",
            s.shard};
  if (s.offload && !contains(a.zero_with_offload, s.zero))
    return {"offload", "has no optimizer state in the host's memory with ZeRO {}", s.zero};
  if (l.expert > 1 && replicates && !contains(a.zero_with_experts, s.zero))
    return {"expert", "has no expert parallelism with ZeRO {}", s.zero};
  if (l.execution->states.shards_whole_experts && s.zero > 1 && model.moe() != nullptr &&
      model.moe()->experts % s.shard != 0)
    return {"unplanned",
            "deals out whole experts over {} shards, which do not divide them: ranks would hold more than "
            "their share and move padding. Shard groups that divide them are planned",
            s.shard};
  if (!a.pads_expert_shares && cuts_experts_unevenly(model, l, s))
    return {"zero", "cuts experts' matrices in equal shares alone, which {} replicas do not give", s.shard};
  return {};
}

struct TrainingRow {
  bool present;
  TrainingFeature feature;
  const char* words;
};

// Ways to train beside full training by AdamW.
std::vector<TrainingRow> training_rows(const Training& t) {
  using F = TrainingFeature;
  const bool adapts = t.adapts();
  return {{adapts && t.frozen_format == FrozenFormat::fp8, F::lora_on_fp8, "LoRA over weights in fp8"},
          {adapts && t.frozen_format == FrozenFormat::nf4, F::lora_on_nf4, "LoRA over weights in 4 bits"},
          {adapts && t.frozen_format == FrozenFormat::int8, F::lora_on_int8,
           "LoRA over weights in 8-bit integers"},
          {t.adapts(AdapterTarget::experts), F::expert_adapters, "adapters in experts"},
          {adapts, F::lora, "LoRA"},
          {!adapts && !t.frozen.empty(), F::frozen_parts, "frozen parts"},
          {t.bf16_gradients, F::bf16_gradients, "gradients in bf16"},
          {t.optimizer == OptimizerKind::adamw8, F::adamw8, "8-bit AdamW"},
          {t.optimizer == OptimizerKind::adafactor, F::adafactor, "Adafactor"},
          {t.optimizer == OptimizerKind::sgd, F::sgd, "SGD"},
          {t.optimizer == OptimizerKind::muon, F::muon, "Muon"},
          {t.packed_length > 0.0, F::packed_sequences, "packed sequences"},
          {!t.offloaded.empty(), F::activation_offload, "activations in CPU memory"},
          {t.deterministic, F::deterministic, "--deterministic"}};
}

// Null: it has none of that name.
const ScheduleAbility* schedule_named(const Abilities& a, const std::string& name) {
  return first_if(a.schedules, [&](const ScheduleAbility& s) { return s.schedule == name; });
}

Traits traits_of_all(const Layout& l) {
  const bool splits = l.pipeline > 1 && find_schedule(l.schedule, "schedule").splits_backward;
  return traits_of(l) | traits_of_leaf(l, splits, l.chunks, l.recompute);
}

}  // namespace

int64_t recomputed_at_level(PartialRecompute rule, int64_t level, int64_t most, int64_t layers) {
  if (level <= 0) return 0;
  const int64_t n = std::max<int64_t>(1, most - level + 1);
  return rule == PartialRecompute::every_nth ? (layers + n - 1) / n : std::min(level, layers);
}

std::optional<int64_t> level_of(PartialRecompute rule, const Layout& l) {
  const int64_t most = *std::max_element(l.layers_per_stage.begin(), l.layers_per_stage.end());
  for (int64_t level = 0; level <= most; ++level) {
    bool all = true;
    for (size_t s = 0; s < l.layers_per_stage.size() && all; ++s) {
      const int64_t layers = l.layers_per_stage[s];
      all = recomputed_layers(l, s, layers) == recomputed_at_level(rule, level, most, layers);
    }
    if (all) return level;
  }
  return std::nullopt;
}

std::optional<Rejection> supports_model(const Framework& framework, const ModelSpec& model,
                                        Precision precision) {
  const Abilities& a = framework.abilities;
  if (auto r = lacks_model(framework, model)) return r;
  const auto& precisions = model.moe() != nullptr ? a.precisions_with_experts : a.precisions;
  if (contains(precisions, precision)) return std::nullopt;
  return refuse(framework, "precision",
                fmt::format("does not train {} in {}; it takes {}", model.name, enum_name(precision),
                            joined(mapped<std::string>(precisions, enum_name<Precision>), ", ")));
}

std::optional<Rejection> supports_degrees(const Framework& framework, const Degrees& l) {
  const Abilities& a = framework.abilities;
  if (l.tensor > 1 && !a.tensor) return refuse_unplanned(framework, "tensor", "tensor", "tensor parallelism");
  if (l.context > 1 && a.context_methods.empty())
    return refuse(framework, "context", "has no context parallelism");
  if (l.pipeline > 1 && a.schedules.empty())
    return refuse(framework, "pipeline", "has no pipeline parallelism");
  return std::nullopt;
}

std::optional<Rejection> supports_split(const Framework& framework, const ModelSpec& model,
                                        const Layout& layout, const Workload& workload) {
  if (auto r = supports_degrees(framework, layout.degrees())) return r;
  const SplitRules rules{framework, model, layout, workload};
  if (auto r = rules.sizes()) return r;
  if (auto r = rules.experts()) return r;
  if (auto r = rules.switches()) return r;
  return check_combination(framework, model.type, traits_of(model) | (traits_of(layout) & ~kSharingTraits));
}

std::optional<Rejection> check_combination(const Framework& framework, const std::string& type, Traits has) {
  const Abilities& a = framework.abilities;
  if (const int at = broken_rule(a.combinations, type, has); at >= 0) {
    const CombinationRule& rule = a.combinations[size_t(at)];
    if (rule.outcome == Outcome::refuses) return refuse(framework, "combination", rule.what);
    if (rule.outcome == Outcome::unplanned)
      return Rejection{"unplanned", -1, 0.0, 0.0,
                       fmt::format("MPT plans no {} for {} ({})", rule.what, framework.title, rule.seen)};
    const bool starts = rule.outcome != Outcome::does_not_start;
    const bool other = rule.outcome == Outcome::other_objective;
    const char* const does = other    ? "trains another objective than one GPU"
                             : starts ? "trains wrong"
                                      : "does not start";
    return refuse(framework,
                  other    ? "objective"
                  : starts ? "trains wrong"
                           : "combination",
                  fmt::format("{} in {}: it {} ({})", does, framework.version, rule.what,
                              rule.seen.substr(0, rule.seen.find(';'))));
  }
  if (is_judged(a.judged, has)) return std::nullopt;
  return Rejection{
      "not judged", -1, 0.0, 0.0,
      fmt::format("MPT has not judged {} with {} together: no run and no line shows that it trains them",
                  framework.title, unjudged(a.judged, has))};
}

bool refuses_sharding(const Framework& framework, const ModelSpec& model, const Layout& layout,
                      const Sharing& sharing) {
  return bool(sharing_rule(framework.abilities, model, layout, sharing));
}

std::optional<Rejection> supports_sharding(const Framework& framework, const ModelSpec& model,
                                           const Layout& layout, const Sharing& sharing) {
  const Broken broken = sharing_rule(framework.abilities, model, layout, sharing);
  if (!broken) return std::nullopt;
  return refuse(framework, broken.constraint, fmt::format(fmt::runtime(broken.what), broken.number));
}

bool needs_rows(const Framework& framework, const std::string& schedule) {
  const ScheduleAbility* const found = schedule_named(framework.abilities, schedule);
  return found == nullptr || found->from_rows;
}

bool deals_equal_rounds(const Framework& framework, const std::string& schedule) {
  const ScheduleAbility* const found = schedule_named(framework.abilities, schedule);
  return found != nullptr && (found->micro_batches == MicroBatchRule::whole_rounds ||
                              found->micro_batches == MicroBatchRule::full_rounds);
}

std::optional<Rejection> runs_by_name(const Framework& framework, const std::string& schedule) {
  if (!needs_rows(framework, schedule)) return std::nullopt;
  return refuse(
      framework, "schedule",
      fmt::format("runs {} only from a file of its rows; --schedule {} searches it", schedule, schedule));
}

std::optional<Rejection> supports_schedule(const Framework& framework, const Layout& layout,
                                           const std::string& schedule, int64_t chunks,
                                           int64_t micro_batches) {
  if (layout.pipeline == 1) return std::nullopt;
  const Abilities& a = framework.abilities;
  const ScheduleAbility* const found = schedule_named(a, schedule);
  if (found == nullptr)
    return refuse(framework, "schedule",
                  fmt::format("has no {} schedule; it has {}", schedule,
                              joined(mapped<std::string>(a.schedules, &ScheduleAbility::schedule), ", ")));
  if (chunks < found->min_chunks || chunks > found->max_chunks)
    return refuse(framework, "chunks",
                  fmt::format("runs {} with {} to {} virtual stages per rank", schedule, found->min_chunks,
                              found->max_chunks));
  if (!takes(found->micro_batches, layout.pipeline, micro_batches)) {
    if (found->micro_batches == MicroBatchRule::multiple_of_ranks)
      return Rejection{"micro-batch groups", -1, 0.0, 0.0,
                       fmt::format("MPT plans {} for {} only with {}", schedule, framework.title,
                                   words(found->micro_batches))};
    return refuse(framework, "micro-batches",
                  fmt::format("needs {} for {}", words(found->micro_batches), schedule));
  }
  const bool compiled =
      layout.execution->kernels.elementwise == ElementwiseKernels::compiled || layout.overlap_tensor;
  if (found->without_compile && compiled)
    return refuse(
        framework, "schedule",
        fmt::format(
            "runs {} only without torch.compile (--execution elementwise=eager, no tensor in --overlap)",
            schedule));
  if (layout.overlap_exchange && chunks < 2)
    return refuse(framework, "overlap", "overlaps the exchange with experts only with virtual stages");
  return std::nullopt;
}

bool takes_micro_batch_groups(const Layout& layout, const Workload& workload, int64_t group) {
  const int64_t count = micro_batches(layout, workload), last = group > 0 ? count % group : 0;
  return group >= layout.pipeline && group <= count && (last == 0 || last >= layout.pipeline);
}

std::optional<Rejection> supports_stages(const Framework& framework, bool equal) {
  if (equal || framework.abilities.stage_division == StageDivision::any) return std::nullopt;
  return refuse(framework, "stages", "needs stages of equal numbers of layers");
}

std::optional<Rejection> supports_recompute(const Framework& framework, Recompute recompute, bool partial) {
  const Abilities& a = framework.abilities;
  if (!contains(a.recomputes, recompute))
    return Rejection{"recompute", -1, 0.0, 0.0,
                     fmt::format("MPT plans no {} recompute for {}", enum_name(recompute), framework.title)};
  if (partial && a.partial_recompute == PartialRecompute::none)
    return refuse(framework, "recompute", "recomputes all layers or none");
  return std::nullopt;
}

std::vector<TrainingFeature> features_of(const Training& training) {
  return mapped_if<TrainingFeature>(training_rows(training), &TrainingRow::present, &TrainingRow::feature);
}

std::optional<Rejection> supports_training(const Framework& framework, const Training& training) {
  for (const TrainingRow& row : training_rows(training)) {
    const Abilities& a = framework.abilities;
    if (!row.present || contains(a.trains, row.feature) || a.trains_unwritten.contains(row.feature)) continue;
    if (const std::string source = enum_name(row.feature); framework.sources.contains(source))
      return refuse_unplanned(framework, "training", source.c_str(), row.words);
    return refuse(framework, "training", fmt::format("does not train with {}", row.words));
  }
  return std::nullopt;
}

ModelVerdict verdict_on(const Framework& framework, const ModelSpec& model, const Training& training) {
  const ModelVerdict& verdict = verdict_on(framework, model);
  if (verdict.verdict != VerdictKind::exported) return verdict;
  const auto& unwritten = framework.abilities.trains_unwritten;
  for (const TrainingRow& row : training_rows(training)) {
    const auto found = unwritten.find(row.feature);
    if (!row.present || found == unwritten.end()) continue;
    return {VerdictKind::not_written,
            fmt::format("{} trains with {} ({}), and {}", framework.title, row.words, found->second,
                        tuners_write(framework.name, row.feature)
                            ? "recipes of fine-tuners say it: export --to trl, llamafactory or axolotl"
                            : "MPT does not write that for it yet: the plan has no export"),
            found->second};
  }
  return verdict;
}

bool combines(const Framework& framework, const std::string& type, Traits traits) {
  const Abilities& a = framework.abilities;
  return broken_rule(a.combinations, type, traits) < 0 && is_judged(a.judged, traits);
}

Objective objective_of(const Framework& framework, const ModelSpec& model, const Layout& layout,
                       const Workload& workload) {
  const Abilities& a = framework.abilities;
  std::vector<CombinationRule> rules = a.combinations;
  std::erase_if(rules, [](const CombinationRule& r) {
    return r.outcome != Outcome::other_objective && r.outcome != Outcome::trains_wrong;
  });
  const Traits several = (micro_batches(layout, workload) > 1 ? bit(Trait::accumulates) : 0) |
                         (layout.data > 1 ? bit(Trait::data_ranks) : 0);
  const Traits traits = traits_of(model) | traits_of_all(layout);
  const int at = broken_rule(rules, model.type, several | traits);
  if (at >= 0) return {false, rules[size_t(at)].what, rules[size_t(at)].seen};
  if (is_judged(a.judged, traits)) return {};
  return {false, fmt::format("was not judged with {} together", unjudged(a.judged, traits)), ""};
}

std::optional<Rejection> supports(const Framework& framework, const ModelSpec& model, const Layout& l,
                                  const Workload& workload) {
  if (auto r = check_degrees(l)) return r;
  auto split = supports_split(framework, model, l, workload);
  if (split && split->constraint == "unplanned") return split;  // what must divide is not known
  if (auto r = check_layout(model, l, workload)) return r;
  if (auto r = supports_overlaps(framework, l)) return r;
  if (auto r = supports_model(framework, model, l.precision)) return r;
  if (auto r = supports_training(framework, l.training)) return r;
  if (split) return split;
  if (auto r = supports_sharding(framework, model, l, {l.zero, l.shard, l.offload_optimizer})) return r;
  if (auto r = supports_schedule(framework, l, l.schedule, l.chunks, micro_batches(l, workload))) return r;
  const bool equal =
      all_of(l.layers_per_stage, [&](int64_t layers) { return layers == l.layers_per_stage.front(); });
  if (auto r = supports_stages(framework, equal)) return r;
  if (auto r = supports_recomputed_layers(framework, l)) return r;
  return check_combination(framework, model.type, traits_of(model) | traits_of_all(l));
}

}  // namespace mpt::frameworks
