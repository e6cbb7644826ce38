// SPDX-License-Identifier: Apache-2.0
#include "planner/search/family_bound.h"

#include <algorithm>
#include <limits>

#include "planner/memory/memory_model.h"

namespace mpt::planner {

FamilyBound family_bound(const SearchProblem& problem, const Family& family, const SplitModel& split) {
  const Layout& layout = family.layout;
  const auto ranks = double(layout.pipeline);
  const auto micro = double(micro_batches(layout, problem.workload));
  const PieceCosts& costs = split.costs;
  double work = costs.embedding_least_s() + costs.head_least_s(), one_layer = 0.0;
  for (int64_t l = 0; l < problem.model.layers; ++l) work += costs.layer_least_s(l);
  one_layer = costs.least_layer_forward_s();
  const Contention contention = contention_of(problem, layout);
  double best_rate = 0.0, best_total_rate = 0.0;
  for (int64_t lanes = 1; lanes <= layout.pipeline; ++lanes) {
    best_rate = std::max(best_rate, contention.rate(lanes));
    best_total_rate = std::max(best_total_rate, double(lanes) * contention.rate(lanes));
  }
  // Rank r waits for r stages of at least one layer's forward each; the ranks' average is bounded by the
  // slowest.
  const double filling = 0.5 * (ranks - 1.0) * one_layer / best_rate;
  FamilyBound bound;
  bound.bound_s = std::max(filling + micro * work / ranks / best_rate, micro * work / best_total_rate);
  bound.bound_s *= 1.0 - 1e-9;

  const StageContent everything{0, problem.model.layers, true, true};
  double least_state = std::numeric_limits<double>::infinity();
  for (const Sharding& sharding : family.shardings) {
    Layout whole = layout;
    whole.pipeline = 1;
    whole.zero = sharding.zero;
    whole.shard = sharding.shard;
    whole.offload_optimizer = sharding.offload;
    least_state = std::min(least_state, double(split.pieces.least_state_bytes(whole, everything)));
  }
  bound.floor_bytes = least_state / ranks + double(split.pieces.least_layer_bytes());
  return bound;
}

}  // namespace mpt::planner
