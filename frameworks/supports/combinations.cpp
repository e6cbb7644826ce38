// SPDX-License-Identifier: Apache-2.0
#include "frameworks/supports/combinations.h"

namespace mpt::frameworks {
namespace {

using T = Trait;

// Traits that say how a layout runs, and are no part of what was seen together.
constexpr Traits kNotJudged =
    bit(T::zero_0) | bit(T::two_stages) | bit(T::waiting_transfers) | bit(T::graphs) |
    bit(T::overlapping_exchange) | bit(T::recomputed_experts) | bit(T::split_experts) |
    bit(T::expert_biases) | bit(T::delta_rules) | bit(T::balance_loss) | bit(T::masked) |
    bit(T::packed_by_mask) | bit(T::larger_micro_batch) | bit(T::fp16) | bit(T::fp32) | bit(T::muon) |
    bit(T::adafactor) | bit(T::accumulates) | bit(T::data_ranks) | bit(T::chunked_loss);

constexpr Traits when(bool holds, Trait trait) { return holds ? bit(trait) : 0; }

Traits bits_of(const std::vector<Trait>& traits) {
  Traits bits = 0;
  for (const Trait trait : traits) bits |= bit(trait);
  return bits;
}

Traits traits_of_kind(const LayerKind& kind) {
  Traits bits =
      when(kind.linear.has_value(), T::linear_mixers) | when(kind.convolution.has_value(), T::convolutions);
  if (kind.linear)
    bits |= when(kind.linear->kind == LinearKind::gated_delta || kind.linear->kind == LinearKind::kimi_delta,
                 T::delta_rules);
  if (!kind.attention) return bits;
  const Attention& a = *kind.attention;
  return bits | when(a.window || a.chunk, T::windows) | when(a.sinks, T::sinks) |
         when(a.score_cap.has_value(), T::score_caps) | when(a.index || a.compressed, T::sparse_attention);
}

}  // namespace

Traits traits_of(const ModelSpec& model) {
  Traits bits = when(model.tied_embeddings, T::ties);
  for (const auto& [name, kind] : model.layers.kinds) bits |= traits_of_kind(kind);
  if (const MixtureOfExperts* const moe = model.moe())
    bits |= bit(T::experts) | when(moe->expert.bias, T::expert_biases) |
            when(moe->balance_loss > 0.0, T::balance_loss);
  return bits;
}

Traits traits_of(const Layout& l) {
  const bool context = l.context > 1, pipeline = l.pipeline > 1;
  Traits bits =
      when(l.training->masked > 0.0, T::masked) | when(l.micro_batch > 1, T::larger_micro_batch) |
      when(l.training->packed_length > 0.0 && l.execution->kernels.attention != AttentionKernel::flash2,
           T::packed_by_mask) |
      when(l.precision == Precision::fp16, T::fp16) | when(l.precision == Precision::fp32, T::fp32) |
      when(l.training->optimizer == OptimizerKind::muon, T::muon) |
      when(l.training->optimizer == OptimizerKind::adafactor, T::adafactor) | when(l.tensor > 1, T::tensor) |
      when(l.sequence_parallel, T::sequence_parallel) |
      when(context && l.context_method == ContextMethod::ring, T::ring) |
      when(context && l.context_method == ContextMethod::all_to_all, T::all_to_all) |
      when(pipeline, T::pipeline) | when(l.pipeline == 2, T::two_stages) |
      when(pipeline && !l.overlap_transfer, T::waiting_transfers) | when(l.expert > 1, T::expert_ranks) |
      when(l.expert_split() > 1, T::split_experts) | when(l.overlap_exchange, T::overlapping_exchange) |
      when(l.execution->kernels.graphs, T::graphs) |
      when(l.execution->kernels.loss == LossKernel::chunked, T::chunked_loss);
  return bits | traits_of_sharing(l.zero, l.shard < l.replicas(), l.offload_optimizer);
}

Traits traits_of_sharing(int64_t zero, bool some_replicas, bool offload) {
  constexpr Trait stages[] = {T::zero_0, T::zero_1, T::zero_2, T::zero_3};
  return bit(stages[zero]) | when(offload, T::offload) | when(zero > 0 && some_replicas, T::shard_groups);
}

Traits traits_of_leaf(const Layout& l, bool splits_backward, int64_t chunks, Recompute recompute) {
  const bool full = recompute == Recompute::full, selective = recompute == Recompute::selective;
  return when(chunks > 1, T::virtual_stages) | when(splits_backward && l.pipeline > 1, T::split_backward) |
         when(selective, T::selective_recompute) | when(full, T::full_recompute) |
         when(full || (selective && l.selective.experts), T::recomputed_experts);
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
