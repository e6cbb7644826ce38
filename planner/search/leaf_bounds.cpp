// SPDX-License-Identifier: Apache-2.0
#include "planner/search/leaf_bounds.h"

namespace mpt::planner {

DegreesBounds::DegreesBounds(const SearchProblem& problem, LayoutResolver& resolver, const Layout& degrees,
                             const LeafList& list, Runners runners,
                             const std::function<bool(const Leaf&)>& too_slow)
    : list_(list), prices_(list.prices), stages_(list.divisions, nullptr) {
  const SplitModel& split = resolver.prices().split(degrees);
  const DeviceCosts devices = devices_of(problem, split, degrees);
  StepPricer pricer(devices, split.pieces, problem.model, degrees, StepPricer::Part::micro_batches);
  const int64_t count = micro_batches(degrees, problem.workload);
  const Contention::Best best_rate = contention_of(problem, degrees).best(degrees.pipeline);
  KindCosts cost;
  for (size_t l = 0; l < list.leaves.size(); ++l) {
    const Leaf& leaf = list.leaves[l];
    Price& price = prices_[list.price_of_leaf[l]];
    if (!std::holds_alternative<std::monostate>(price) || !has_any(runners & list.runners[l])) continue;
    if (too_slow(leaf)) {
      price = PruneReason::bound;
      continue;
    }
    const StageKinds*& stages = stages_[list.division_of_leaf[l]];
    if (stages == nullptr) stages = resolver.stages(degrees, leaf);
    if (stages == nullptr) {
      price = PruneReason::duplicate;
      continue;
    }
    pricer.price(*stages, least_recompute(leaf.recompute), cost);
    const MicroBatchBounds bounds = micro_batch_bounds_s(degrees, cost, *stages, count, best_rate);
    least_s_ = std::min(least_s_, bounds.with({}, count, best_rate).least_s());
    price = bounds;
  }
}

LeafBounds::LeafBounds(const SearchProblem& problem, LayoutResolver& resolver, const Layout& node,
                       const LeafList& list, const DegreesBounds& degrees, bool makes_schedules)
    : list_(list),
      degrees_(degrees),
      node_(node),
      split_(resolver.prices().split(node)),
      devices_(devices_of(problem, split_, node)),
      sharding_(resolver.prices().sharding(node)),
      pricer_(devices_, split_.pieces, problem.model, node, StepPricer::Part::whole_step, &sharding_.states),
      micro_batches_(micro_batches(node, problem.workload)),
      best_rate_(contention_of(problem, node).best(node.pipeline)),
      rest_(list.divisions, nullptr),
      bounds_(list.prices),
      memory_(problem, resolver, node, list, makes_schedules) {}

double LeafBounds::least_s() {
  const RestOfStep*& rest = rest_[list_.division_of_leaf[leaf_]];
  if (rest == nullptr) {
    const StageKinds& stages = degrees_.stages(leaf_);
    const auto [at, fresh] = sharding_.rest.try_emplace(&stages);
    if (fresh) at->second = pricer_.least_rest(stages, best_rate_.of_one);
    rest = &at->second;
  }
  return std::get<MicroBatchBounds>(degrees_.price(leaf_))  // it is not pruned
      .with(*rest, micro_batches_, best_rate_)
      .of(schedule_catalog()[list_.leaves[leaf_].schedule]);
}

double LeafBounds::bound_s() {
  const Leaf& leaf = list_.leaves[leaf_];
  std::optional<StepBounds>& bounds = bounds_[list_.price_of_leaf[leaf_]];
  if (!bounds) {
    const StageKinds& stages = degrees_.stages(leaf_);
    pricer_.price(stages, least_recompute(leaf.recompute), cost_);
    bounds = lower_bounds_s(node_, cost_, stages, micro_batches_, best_rate_);
  }
  return bounds->of(schedule_catalog()[leaf.schedule]);
}

}  // namespace mpt::planner
