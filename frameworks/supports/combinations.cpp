// SPDX-License-Identifier: Apache-2.0
#include "frameworks/supports/combinations.h"

namespace mpt::frameworks {
namespace {

// Traits that say how a layout runs, and are no part of what was seen together.
constexpr Traits kNotJudged =
    bit(Trait::zero_0) | bit(Trait::two_stages) | bit(Trait::waiting_transfers) | bit(Trait::graphs) |
    bit(Trait::overlapping_exchange) | bit(Trait::recomputed_experts) | bit(Trait::split_experts) |
    bit(Trait::expert_biases) | bit(Trait::delta_rules) | bit(Trait::balance_loss) | bit(Trait::masked) |
    bit(Trait::larger_micro_batch) | bit(Trait::fp16) | bit(Trait::fp32) | bit(Trait::muon) |
    bit(Trait::adafactor) | bit(Trait::accumulates) | bit(Trait::data_ranks) | bit(Trait::chunked_loss);

constexpr Traits when(bool holds, Trait trait) { return holds ? bit(trait) : 0; }

Traits bits_of(const std::vector<Trait>& traits) {
  Traits bits = 0;
  for (const Trait trait : traits) bits |= bit(trait);
  return bits;
}

Traits traits_of_kind(const LayerKind& kind) {
  Traits bits = when(kind.linear.has_value(), Trait::linear_mixers) |
                when(kind.convolution.has_value(), Trait::convolutions);
  if (kind.linear)
    bits |= when(kind.linear->kind == LinearKind::gated_delta || kind.linear->kind == LinearKind::kimi_delta,
                 Trait::delta_rules);
  if (!kind.attention) return bits;
  const Attention& a = *kind.attention;
  return bits | when(a.window || a.chunk, Trait::windows) | when(a.sinks, Trait::sinks) |
         when(a.score_cap.has_value(), Trait::score_caps) |
         when(a.index || a.compressed, Trait::sparse_attention);
}

}  // namespace

Traits traits_of(const ModelSpec& model) {
  Traits bits = when(model.tied_embeddings, Trait::ties);
  for (const auto& [name, kind] : model.layers.kinds) bits |= traits_of_kind(kind);
  if (const MixtureOfExperts* const moe = model.moe())
    bits |= bit(Trait::experts) | when(moe->expert.bias, Trait::expert_biases) |
            when(moe->balance_loss > 0.0, Trait::balance_loss);
  return bits;
}

Traits traits_of(const Layout& l) {
  const bool context = l.context > 1, pipeline = l.pipeline > 1;
  Traits bits =
      when(l.training->masked > 0.0, Trait::masked) | when(l.micro_batch > 1, Trait::larger_micro_batch) |
      when(l.precision == Precision::fp16, Trait::fp16) | when(l.precision == Precision::fp32, Trait::fp32) |
      when(l.training->optimizer == OptimizerKind::muon, Trait::muon) |
      when(l.training->optimizer == OptimizerKind::adafactor, Trait::adafactor) |
      when(l.tensor > 1, Trait::tensor) | when(l.sequence_parallel, Trait::sequence_parallel) |
      when(context && l.context_method == ContextMethod::ring, Trait::ring) |
      when(context && l.context_method == ContextMethod::all_to_all, Trait::all_to_all) |
      when(pipeline, Trait::pipeline) | when(l.pipeline == 2, Trait::two_stages) |
      when(pipeline && !l.overlap_transfer, Trait::waiting_transfers) |
      when(l.expert > 1, Trait::expert_ranks) | when(l.expert_split() > 1, Trait::split_experts) |
      when(l.overlap_exchange, Trait::overlapping_exchange) |
      when(l.execution->kernels.graphs, Trait::graphs) |
      when(l.execution->kernels.loss == LossKernel::chunked, Trait::chunked_loss);
  return bits | traits_of_sharing(l.zero, l.shard < l.replicas(), l.offload_optimizer);
}

Traits traits_of_sharing(int64_t zero, bool some_replicas, bool offload) {
  constexpr Trait stages[] = {Trait::zero_0, Trait::zero_1, Trait::zero_2, Trait::zero_3};
  return bit(stages[zero]) | when(offload, Trait::offload) |
         when(zero > 0 && some_replicas, Trait::shard_groups);
}

Traits traits_of_leaf(const Layout& l, bool splits_backward, int64_t chunks, Recompute recompute) {
  const bool full = recompute == Recompute::full, selective = recompute == Recompute::selective;
  return when(chunks > 1, Trait::virtual_stages) |
         when(splits_backward && l.pipeline > 1, Trait::split_backward) |
         when(selective, Trait::selective_recompute) | when(full, Trait::full_recompute) |
         when(full || (selective && l.selective.experts), Trait::recomputed_experts);
}

void index(std::vector<CombinationRule>& rules, std::vector<JudgedSet>& sets) {
  for (CombinationRule& rule : rules) rule.bits = bits_of(rule.with);
  for (JudgedSet& set : sets) set.bits = bits_of(set.with);
}

int broken_rule(const std::vector<CombinationRule>& rules, const std::string& type, Traits traits) {
  const auto holds = [&](const CombinationRule& rule) {
    const Traits with = rule.bits != 0 ? rule.bits : bits_of(rule.with);
    return (with & ~traits) == 0 && (bits_of(rule.without) & traits) == 0 &&
           (rule.types.empty() || contains(rule.types, type)) && !contains(rule.not_types, type);
  };
  const auto found = find_if(rules, holds);
  return found == rules.end() ? -1 : int(found - rules.begin());
}

bool is_judged(const std::vector<JudgedSet>& sets, Traits traits) {
  return any_of(sets, [&](const JudgedSet& set) {
    return (traits & ~kNotJudged & ~(set.bits != 0 ? set.bits : bits_of(set.with))) == 0;
  });
}

std::string unjudged(const std::vector<JudgedSet>& sets, Traits traits) {
  Traits left = traits & ~kNotJudged;
  std::vector<std::string> words;
  for (const auto& [trait, name] : EnumNames<Trait>::table()) {
    if ((left & bit(trait)) == 0) continue;
    if (is_judged(sets, left & ~bit(trait)))
      words.push_back(replaced(name, '_', ' '));
    else
      left &= ~bit(trait);
  }
  return joined(words, ", ");
}

}  // namespace mpt::frameworks
