// SPDX-License-Identifier: Apache-2.0
#include "frameworks/supports/supports.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "models/value_map.h"

namespace mpt::frameworks {
namespace {

template <class T>
bool contains(const std::vector<T>& values, const T& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

std::optional<Rejection> refuse(const Framework& framework, const char* constraint, const std::string& what) {
  return Rejection{constraint, -1, 0.0, 0.0, framework.title + " " + what};
}

template <class E>
std::string words(E value) {
  return replaced(enum_name(value), '_', ' ');
}

// What the rules of a split look at.
struct Asked {
  const Abilities& can;
  const ModelSpec& model;
  const Layout& layout;
  const Workload& workload;

  bool splits_tensor() const { return layout.tensor > 1; }
  bool spreads_experts() const { return layout.expert > 1; }
  bool splits_experts_otherwise() const {
    return spreads_experts() && layout.expert_split() != layout.tensor;
  }
  bool needs_sequence_parallel() const {
    return can.sequence_parallel == SequenceParallelRule::always ||
           (can.experts_need_sequence_parallel && model.moe() != nullptr);
  }
  int64_t sequence_pieces() const { return 2 * layout.context * layout.tensor; }
  // Tokens of a sample and sizes of the layers' products on one rank.
  std::vector<int64_t> product_sizes() const {
    const Attention& attention = model.attention();
    const int64_t tensor = layout.tensor;
    return {workload.sequence / layout.context, model.hidden, attention.heads * attention.head_dim / tensor,
            std::max<int64_t>(1, attention.kv_heads / tensor) * attention.head_dim,
            model.mlp().ffn_hidden / tensor};
  }
  std::optional<models::Value> lacks_for_spreading() const {
    if (can.cannot_spread.empty()) return std::nullopt;
    const models::Values values = models::values_of(model);
    for (const models::Value value : can.cannot_spread) {
      const auto found = values.find(value);
      if (found != values.end() && found->second != Json(false)) return value;
    }
    return std::nullopt;
  }
};

// A table of rules: who breaks one, and how to say so. Words are made for those alone that break it.
struct SplitRule {
  bool (*broken)(const Asked&);
  const char* constraint;
  std::string (*reason)(const Asked&);
};

const SplitRule kSplitRules[] = {
    {[](const Asked& a) {
       return a.layout.context > 1 && a.layout.pipeline > 1 && !a.can.context_in_pipeline;
     },
     "context", [](const Asked&) { return std::string("has no context parallelism in a pipeline"); }},
    {[](const Asked& a) {
       return a.can.sequence_divides_by_tensor && a.sequence_pieces() > 2 &&
              a.workload.sequence % a.sequence_pieces() != 0;
     },
     "sequence",
     [](const Asked& a) {
       return fmt::format("needs a sequence that divides by 2 x context x tensor = {}", a.sequence_pieces());
     }},
    {[](const Asked& a) {
       return a.layout.pipeline > 1 && a.model.tied_embeddings && !a.can.ties_in_pipeline;
     },
     "pipeline",
     [](const Asked&) {
       return std::string("has no pipeline for a head that shares the embedding's weight");
     }},
    {[](const Asked& a) {
       return a.layout.execution.kernels.graphs && a.can.graphs_alone &&
              (a.layout.pipeline > 1 || a.spreads_experts());
     },
     "graphs",
     [](const Asked&) {
       return std::string("captures graphs only without pipelines and expert parallelism");
     }},
    {[](const Asked& a) {
       if (a.layout.precision != Precision::nvfp4) return false;
       const std::vector<int64_t> sizes = a.product_sizes();
       return std::any_of(sizes.begin(), sizes.end(),
                          [&](int64_t size) { return size % a.can.nvfp4_multiple != 0; });
     },
     "precision",
     [](const Asked& a) {
       return fmt::format("needs multiples of {} as sizes of nvfp4 products; a rank has {}",
                          a.can.nvfp4_multiple, fmt::join(a.product_sizes(), ", "));
     }},
    {[](const Asked& a) { return a.spreads_experts() && !a.can.expert; }, "expert",
     [](const Asked&) { return std::string("has no expert parallelism"); }},
    {[](const Asked& a) {
       return a.model.moe() != nullptr && a.splits_tensor() && !a.can.expert_beside_tensor;
     },
     "expert", [](const Asked&) { return std::string("has no experts with tensor parallelism"); }},
    {[](const Asked& a) {
       return a.model.moe() != nullptr && a.layout.pipeline > 1 && !a.can.experts_in_pipeline;
     },
     "expert", [](const Asked&) { return std::string("has no experts in a pipeline"); }},
    {[](const Asked& a) {
       return a.model.moe() != nullptr && a.layout.context > 1 && !a.can.experts_with_context;
     },
     "expert", [](const Asked&) { return std::string("has no experts with context parallelism"); }},
    {[](const Asked& a) {
       return a.splits_experts_otherwise() && a.can.expert_split == ExpertSplit::as_tensor;
     },
     "expert", [](const Asked&) { return std::string("splits experts as it splits dense layers"); }},
    {[](const Asked& a) {
       return a.spreads_experts() && a.layout.expert_split() > 1 && a.can.expert_split == ExpertSplit::whole;
     },
     "expert", [](const Asked&) { return std::string("keeps each expert whole on one rank"); }},
    {[](const Asked& a) {
       return a.model.moe() != nullptr && a.model.moe()->expert.bias && a.layout.expert_split() > 1 &&
              !a.can.splits_expert_biases;
     },
     "expert", [](const Asked&) { return std::string("does not split experts that have biases"); }},
    {[](const Asked& a) { return a.spreads_experts() && a.lacks_for_spreading().has_value(); }, "expert",
     [](const Asked& a) {
       return fmt::format("does not spread experts of models with {}",
                          models::words_of(*a.lacks_for_spreading()));
     }},
    {[](const Asked& a) { return a.layout.overlap_tensor && !a.can.overlap_tensor; }, "overlap",
     [](const Asked&) { return std::string("does not overlap tensor-parallel collectives"); }},
    {[](const Asked& a) { return a.layout.overlap_exchange && !a.can.overlap_exchange; }, "overlap",
     [](const Asked&) { return std::string("does not overlap the exchange of tokens with experts"); }},
    // Other values of switches that a search tries by itself mend these. So they come last: the first rule
    // that is broken is the one nearest to what was asked for.
    {[](const Asked& a) {
       return a.layout.sequence_parallel && a.can.sequence_parallel == SequenceParallelRule::none;
     },
     "sequence parallel", [](const Asked&) { return std::string("has no sequence parallelism"); }},
    {[](const Asked& a) {
       return a.splits_tensor() && a.needs_sequence_parallel() && !a.layout.sequence_parallel;
     },
     "sequence parallel",
     [](const Asked&) { return std::string("needs sequence parallelism with tensor parallelism"); }},
    {[](const Asked& a) {
       return a.layout.context > 1 && !contains(a.can.context_methods, a.layout.context_method);
     },
     "context",
     [](const Asked& a) {
       return fmt::format("has no {} context parallelism", enum_name(a.layout.context_method));
     }},
    {[](const Asked& a) {
       return a.layout.context > 1 && a.layout.context_method == ContextMethod::ring &&
              a.model.has_windows() && !a.can.ring_with_windows;
     },
     "context", [](const Asked&) { return std::string("has no ring attention with sliding windows"); }},
    {[](const Asked& a) {
       return a.layout.pipeline > 1 && a.layout.data > 1 && !contains(a.can.orders, a.layout.order);
     },
     "order",
     [](const Asked& a) { return fmt::format("does not number ranks {}", enum_name(a.layout.order)); }},
    {[](const Asked& a) {
       const Layout& l = a.layout;
       return l.order == RankOrder::data_outermost && l.pipeline > 1 && l.data > 1 &&
              l.expert_replicas() != l.data && !a.can.experts_in_any_order;
     },
     "order",
     [](const Asked&) {
       return std::string("needs as many replicas of experts as of the rest where data is outermost");
     }},
};

bool takes(MicroBatchRule rule, int64_t ranks, int64_t micro_batches) {
  switch (rule) {
    case MicroBatchRule::any:
      return true;
    case MicroBatchRule::at_least_ranks:
      return micro_batches >= ranks;
    case MicroBatchRule::multiple_of_ranks:
      return micro_batches % ranks == 0;
    case MicroBatchRule::whole_rounds:
      return micro_batches % std::max<int64_t>(1, micro_batches / ranks) == 0;
    case MicroBatchRule::at_least_two_ranks:
      return micro_batches >= 2 * ranks;
  }
  return false;
}

const char* words(MicroBatchRule rule) {
  switch (rule) {
    case MicroBatchRule::at_least_ranks:
      return "at least as many micro-batches as pipeline ranks";
    case MicroBatchRule::multiple_of_ranks:
      return "a multiple of the pipeline ranks as micro-batches";
    case MicroBatchRule::whole_rounds:
      return "micro-batches that fill whole rounds of the pipeline ranks";
    case MicroBatchRule::at_least_two_ranks:
      return "at least twice as many micro-batches as pipeline ranks";
    default:
      return "any number of micro-batches";
  }
}

std::string schedule_names_of(const Abilities& a) {
  std::vector<std::string> names;
  for (const ScheduleAbility& s : a.schedules) names.push_back(s.schedule);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

// Whether the replicas that share states are whole groups of context and expert ranks, and part of the data
// ranks among them where these are divided.
bool holds_groups(const Layout& l, const Sharing& s) {
  if (s.shard % l.context != 0 || (s.shard < l.replicas() && s.shard == l.context)) return false;
  return l.expert == 1 || s.shard * l.tensor % (l.expert * l.expert_split()) == 0;
}

std::optional<Rejection> supports_recomputed_layers(const Framework& framework, const Layout& l) {
  const bool partial = l.recompute == Recompute::full && !l.recomputed_layers.empty() &&
                       l.recomputed_layers != l.layers_per_stage;
  if (auto r = supports_recompute(framework, l.recompute, partial)) return r;
  const PartialRecompute rule = framework.abilities.partial_recompute;
  if (!partial || rule == PartialRecompute::any || level_of(rule, l)) return std::nullopt;
  return refuse(framework, "recompute",
                rule == PartialRecompute::same_count ? "recomputes the same number of layers in every stage"
                                                     : "recomputes every n-th layer, with one n");
}

// Communication of the layout that is not overlapped, though the framework always overlaps it.
std::optional<Rejection> supports_overlaps(const Framework& framework, const Layout& l) {
  const bool gathers = l.zero > 0 && l.replicas() > 1;
  for (const auto& [beside, what] :
       {std::pair{l.overlap_gradient_reduce || !l.reduces_gradients(), AlwaysBeside::gradient_reduce},
        {l.overlap_parameter_gather || !gathers, AlwaysBeside::parameter_gather},
        {l.overlap_transfer || l.pipeline == 1, AlwaysBeside::transfer}}) {
    if (!beside && contains(framework.abilities.always_overlaps, what))
      return refuse(framework, "overlap", fmt::format("overlaps {} with compute, always", words(what)));
  }
  return std::nullopt;
}

}  // namespace

int64_t recomputed_at_level(PartialRecompute rule, int64_t level, int64_t most, int64_t layers) {
  if (level <= 0) return 0;
  if (rule == PartialRecompute::every_nth) return layers / std::max<int64_t>(1, most - level + 1);
  return std::min(level, layers);
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

std::optional<int64_t> every_nth(const Layout& l) {
  const auto level = level_of(PartialRecompute::every_nth, l);
  if (!level || *level == 0) return std::nullopt;
  return *std::max_element(l.layers_per_stage.begin(), l.layers_per_stage.end()) - *level + 1;
}

std::optional<Rejection> supports_model(const Framework& framework, const ModelSpec& model,
                                        Precision precision) {
  const Abilities& a = framework.abilities;
  if (auto r = lacks_model(framework, model)) return r;
  const std::vector<Precision>& precisions =
      model.moe() != nullptr ? a.precisions_with_experts : a.precisions;
  if (contains(precisions, precision)) return std::nullopt;
  std::vector<std::string> names;
  for (const Precision p : precisions) names.push_back(enum_name(p));
  return refuse(framework, "precision",
                fmt::format("does not train {} in {}; it takes {}", model.name, enum_name(precision),
                            fmt::join(names, ", ")));
}

std::optional<Rejection> supports_degrees(const Framework& framework, const Degrees& l) {
  const Abilities& a = framework.abilities;
  if (l.tensor > 1 && !a.tensor) return refuse(framework, "tensor", "has no tensor parallelism");
  if (l.context > 1 && a.context_methods.empty())
    return refuse(framework, "context", "has no context parallelism");
  if (l.pipeline > 1 && a.schedules.empty())
    return refuse(framework, "pipeline", "has no pipeline parallelism");
  return std::nullopt;
}

std::optional<Rejection> supports_split(const Framework& framework, const ModelSpec& model,
                                        const Layout& layout, const Workload& workload) {
  if (auto r = supports_degrees(framework, layout.degrees())) return r;
  const Asked asked{framework.abilities, model, layout, workload};
  for (const SplitRule& rule : kSplitRules) {
    if (rule.broken(asked)) return refuse(framework, rule.constraint, rule.reason(asked));
  }
  return std::nullopt;
}

namespace {

// ZeRO stages, as the layout has replicas to share states out over.
std::optional<Rejection> supports_zero(const Framework& framework, const Layout& l, const Sharing& s) {
  const Abilities& a = framework.abilities;
  const bool alone = l.tensor == 1 && l.pipeline == 1 && l.context == 1;
  if (!contains(l.pipeline > 1 ? a.zero_in_pipeline : a.zero, s.zero)) {
    return refuse(
        framework, "zero",
        fmt::format("has no ZeRO {}{}", s.zero, l.pipeline > 1 ? " with pipeline parallelism" : ""));
  }
  if (s.zero == 0 && a.plain_replicas_alone && !alone)
    return refuse(framework, "zero", "combines plain replicas with no other parallelism");
  return std::nullopt;
}

// Newton-Schulz steps need whole matrices: ranks own some each, and what backward shares out is pieces.
std::optional<Rejection> supports_muon(const Framework& framework, const Sharing& s) {
  if (s.zero > 1)
    return refuse(framework, "zero", "updates whole matrices with Muon, not the shares of ZeRO 2 and 3");
  if (s.offload) return refuse(framework, "offload", "has no Muon in the host's memory");
  return std::nullopt;
}

// States that part of the replicas share out.
std::optional<Rejection> supports_shard_groups(const Framework& framework, const Layout& l,
                                               const Sharing& s) {
  const Abilities& a = framework.abilities;
  if (!contains(a.zero_with_shard_groups, s.zero))
    return refuse(framework, "zero", fmt::format("has no hybrid sharding with ZeRO {}", s.zero));
  if (l.expert > 1 && !a.shard_groups_cut_experts && l.expert_replicas() % (l.replicas() / s.shard) != 0)
    return refuse(framework, "zero", "needs shard groups that divide the replicas of experts");
  return std::nullopt;
}

bool gathers_alone(const Layout& l) { return l.overlap_parameter_gather && !l.overlap_gradient_reduce; }

}  // namespace

std::optional<Rejection> supports_sharding(const Framework& framework, const Layout& l, const Sharing& s) {
  const Abilities& a = framework.abilities;
  // With one replica there is nothing to share out.
  const bool replicates = l.reduces_gradients() && l.replicas() > 1;
  std::optional<Rejection> r;
  if (replicates) r = supports_zero(framework, l, s);
  if (!r && l.training.optimizer == OptimizerKind::muon) r = supports_muon(framework, s);
  if (!r && s.zero > 0 && s.shard < l.replicas()) r = supports_shard_groups(framework, l, s);
  if (r) return r;
  if (s.zero > 0 && gathers_alone(l) && !a.gather_overlap_alone)
    return refuse(framework, "overlap", "overlaps parameter gathering only beside gradient reduction");
  if (a.shards_hold_groups && s.zero > 0 && !holds_groups(l, s)) {
    return refuse(framework, "zero",
                  fmt::format("shares states out over whole groups of context and expert ranks, not over {} "
                              "replicas",
                              s.shard));
  }
  if (s.offload && !contains(a.zero_with_offload, s.zero)) {
    return refuse(framework, "offload",
                  fmt::format("has no optimizer state in the host's memory with ZeRO {}", s.zero));
  }
  if (l.expert > 1 && replicates && !contains(a.zero_with_experts, s.zero))
    return refuse(framework, "expert", fmt::format("has no expert parallelism with ZeRO {}", s.zero));
  return std::nullopt;
}

std::optional<Rejection> supports_schedule(const Framework& framework, const Layout& layout,
                                           const std::string& schedule, int64_t chunks,
                                           int64_t micro_batches) {
  if (layout.pipeline == 1) return std::nullopt;
  const Abilities& a = framework.abilities;
  const auto found = std::find_if(a.schedules.begin(), a.schedules.end(),
                                  [&](const ScheduleAbility& s) { return s.schedule == schedule; });
  if (found == a.schedules.end()) {
    return refuse(framework, "schedule",
                  fmt::format("has no {} schedule; it has {}", schedule, schedule_names_of(a)));
  }
  if (chunks < found->min_chunks || chunks > found->max_chunks) {
    return refuse(framework, "chunks",
                  fmt::format("runs {} with {} to {} virtual stages per rank", schedule, found->min_chunks,
                              found->max_chunks));
  }
  if (!takes(found->micro_batches, layout.pipeline, micro_batches)) {
    return refuse(framework, "micro-batches",
                  fmt::format("needs {} for {}", words(found->micro_batches), schedule));
  }
  const bool compiled =
      layout.execution.kernels.elementwise == ElementwiseKernels::compiled || layout.overlap_tensor;
  if (found->without_compile && compiled) {
    return refuse(
        framework, "schedule",
        fmt::format(
            "runs {} only without torch.compile (--execution elementwise=eager, no tensor in --overlap)",
            schedule));
  }
  if (chunks > 1 && layout.pipeline == 2 && !layout.overlap_transfer && !a.blocking_interleaved_pair)
    return refuse(framework, "overlap", "interleaves two pipeline ranks only with overlapping transfers");
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
    return refuse(framework, "recompute", fmt::format("has no {} recompute", enum_name(recompute)));
  if (partial && a.partial_recompute == PartialRecompute::none)
    return refuse(framework, "recompute", "recomputes all layers or none");
  return std::nullopt;
}

std::optional<Rejection> supports(const Framework& framework, const ModelSpec& model, const Layout& l,
                                  const Workload& workload) {
  if (auto r = check_layout(model, l, workload)) return r;
  if (auto r = supports_overlaps(framework, l)) return r;
  if (auto r = supports_model(framework, model, l.precision)) return r;
  if (auto r = supports_training(framework, l.training)) return r;
  if (auto r = supports_split(framework, model, l, workload)) return r;
  if (auto r = supports_sharding(framework, l, {l.zero, l.shard, l.offload_optimizer})) return r;
  if (auto r = supports_schedule(framework, l, l.schedule, l.chunks, micro_batches(l, workload))) return r;
  const bool equal = std::all_of(l.layers_per_stage.begin(), l.layers_per_stage.end(),
                                 [&](int64_t layers) { return layers == l.layers_per_stage.front(); });
  if (auto r = supports_stages(framework, equal)) return r;
  const bool recomputes_experts =
      l.recompute == Recompute::full || (l.recompute == Recompute::selective && l.selective.experts);
  if (l.overlap_exchange && recomputes_experts && !framework.abilities.exchange_beside_full_recompute)
    return refuse(framework, "overlap",
                  "overlaps the exchange with experts only where they are not recomputed");
  return supports_recomputed_layers(framework, l);
}

}  // namespace mpt::frameworks
