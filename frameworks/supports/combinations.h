// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which parts of a layout and a model a framework runs together. A rule names traits that do not go together,
// and what was seen of them. A judged set names traits that do. What is in no judged set is not judged. Both
// stand in framework.json; supports() reads them, once for a split of ranks and once for a whole layout.

#include <cstdint>
#include <string>
#include <vector>

#include "base/fields.h"
#include "core/layout.h"
#include "core/model_spec.h"

namespace mpt::frameworks {

/// What a combination is made of: parts of the model, then choices of the layout.
enum class Trait {
  windows,
  sinks,
  score_caps,
  sparse_attention,
  linear_mixers,  // Mamba, delta rules and their like, without short convolutions
  delta_rules,
  convolutions,
  experts,
  expert_biases,
  ties,
  balance_loss,
  masked,              // the loss leaves tokens out
  packed_by_mask,      // sequences share rows, and a mask alone keeps them apart
  larger_micro_batch,  // of several sequences
  accumulates,         // several micro-batches a step: objective_of() alone asks, as few steps have one
  data_ranks,          // several, and objective_of() alone asks
  fp16,
  fp32,
  muon,
  adafactor,
  tensor,
  sequence_parallel,
  ring,
  all_to_all,
  pipeline,
  two_stages,         // a pipeline of two ranks
  waiting_transfers,  // a pipeline that does not overlap what it sends
  expert_ranks,
  split_experts,         // each expert over several ranks
  overlapping_exchange,  // with experts, beside another micro-batch
  graphs,
  chunked_loss,
  zero_0,
  zero_1,
  zero_2,
  zero_3,
  shard_groups,
  offload,
  virtual_stages,
  split_backward,
  selective_recompute,
  full_recompute,
  recomputed_experts,
};
using Traits = uint64_t;  // a bit for each

constexpr Traits bit(Trait trait) { return Traits{1} << int(trait); }

/// What ranks that hold the same weights share out: the traits that a node of degrees leaves open.
inline constexpr Traits kSharingTraits = bit(Trait::zero_0) | bit(Trait::zero_1) | bit(Trait::zero_2) |
                                         bit(Trait::zero_3) | bit(Trait::shard_groups) | bit(Trait::offload);

/// Parts of the model.
Traits traits_of(const ModelSpec& model);
/// What replicas share out.
Traits traits_of_sharing(int64_t zero, bool some_replicas, bool offload);
/// Degrees, overlaps, kernels and sharding of the layout: all that a node of the search knows above its
/// leaves.
Traits traits_of(const Layout& layout);
/// What a leaf adds: chunks, the schedule and recompute.
Traits traits_of_leaf(const Layout& layout, bool splits_backward, int64_t chunks, Recompute recompute);

/// refuses: it says so, or has no code for it. does_not_start: it raises an error at the start.
/// trains_wrong: its gradients are not those of its loss. other_objective: its loss is another than that of
/// one GPU that takes one sequence at a time. unplanned: it may run, and MPT plans it not yet.
enum class Outcome { refuses, does_not_start, trains_wrong, other_objective, unplanned };

/// Traits that do not go together.
struct CombinationRule {
#include "generated/CombinationRule.inc"

  Traits bits = 0;  // of `with`, once index() was called
};

/// Traits that were seen to go together, and with them all sets of fewer.
struct JudgedSet {
#include "generated/JudgedSet.inc"

  Traits bits = 0;  // of `with`, once index() was called: a search asks hundreds of thousands of times
};

/// Sets `bits`.
void index(std::vector<CombinationRule>& rules, std::vector<JudgedSet>& sets);
/// Index of the first rule that holds for these traits of a model of `type`; -1: none.
int broken_rule(const std::vector<CombinationRule>& rules, const std::string& type, Traits traits);
/// Whether a judged set has all these traits.
bool is_judged(const std::vector<JudgedSet>& sets, Traits traits);
/// The fewest traits of these that are in no judged set together, as people say them.
std::string unjudged(const std::vector<JudgedSet>& sets, Traits traits);

}  // namespace mpt::frameworks
