// SPDX-License-Identifier: Apache-2.0
#include "planner/search/leaf_bounds.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace mpt::planner {

LeafList::LeafList(std::vector<Leaf> all) : leaves(std::move(all)) {
  // By chunks, division into stages, recompute and placement. What is fitted later stands as no recompute.
  std::map<std::tuple<uint16_t, StageSplit, Recompute, bool>, uint16_t> price_of;
  std::map<std::tuple<uint16_t, StageSplit, bool>, uint16_t> division_of;
  for (const Leaf& leaf : leaves) {
    const bool rounds = in_rounds(leaf);
    division_of_leaf.push_back(
        division_of.try_emplace({leaf.chunks, leaf.split, rounds}, uint16_t(division_of.size()))
            .first->second);
    price_of_leaf.push_back(
        price_of
            .try_emplace({leaf.chunks, leaf.split, least_recompute(leaf.recompute), rounds},
                         uint16_t(price_of.size()))
            .first->second);
  }
  prices = price_of.size();
  divisions = division_of.size();
}

DegreesBounds::DegreesBounds(const SearchProblem& problem, LayoutResolver& resolver, const Layout& degrees,
                             const LeafList& list, const std::function<bool(const Leaf&)>& too_slow)
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
    if (price.state != State::unpriced) continue;
    if (too_slow(leaf)) {
      price.state = State::too_slow;
      continue;
    }
    const StageKinds*& stages = stages_[list.division_of_leaf[l]];
    if (stages == nullptr) stages = resolver.stages(degrees, leaf);
    if (stages == nullptr) {
      price.state = State::duplicate;
      continue;
    }
    pricer.price(*stages, least_recompute(leaf.recompute), cost);
    price = {State::priced, micro_batch_bounds_s(degrees, cost, *stages, count, best_rate)};
  }
}

LeafBounds::LeafBounds(const SearchProblem& problem, LayoutResolver& resolver, const Layout& node,
                       const LeafList& list, const DegreesBounds& degrees)
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
      bounds_(list.prices) {}

double LeafBounds::least_s(size_t l) {
  const RestOfStep*& rest = rest_[list_.division_of_leaf[l]];
  if (rest == nullptr) {
    const StageKinds& stages = degrees_.stages(l);
    const auto [at, fresh] = sharding_.rest.try_emplace(&stages);
    if (fresh) at->second = pricer_.least_rest(stages, best_rate_.of_one);
    rest = &at->second;
  }
  return degrees_.micro_batches_s(l)
      .with(*rest, micro_batches_, best_rate_)
      .of(schedule_catalog()[list_.leaves[l].schedule]);
}

double LeafBounds::bound_s(size_t l) {
  const Leaf& leaf = list_.leaves[l];
  std::optional<StepBounds>& bounds = bounds_[list_.price_of_leaf[l]];
  if (!bounds) {
    const StageKinds& stages = degrees_.stages(l);
    pricer_.price(stages, least_recompute(leaf.recompute), cost_);
    bounds = lower_bounds_s(node_, cost_, stages, micro_batches_, best_rate_);
  }
  return bounds->of(schedule_catalog()[leaf.schedule]);
}

FittedBounds::FittedBounds(const SearchProblem& problem, const SplitModel& split, const Layout& layout,
                           const StageKinds& stages, StateCosts& states)
    : problem_(problem),
      split_(split),
      layout_(layout),
      stages_(stages),
      states_(states),
      devices_(devices_of(problem, split, layout)) {}

double FittedBounds::first_rank_s(std::span<const int64_t> recomputed_layers) const {
  // A pipeline of this rank alone: nothing is waited for, and the first stage is its own.
  StageKinds first;
  first.places = {{0, 1, 0}};
  first.row_of_rank = {0};
  std::vector<uint16_t>& row = first.rows.emplace_back();
  for (size_t s = 0; s < stages_.kind_of_stage.size(); ++s) {
    if (stages_.rank_of_stage[s] != stages_.rank_of_stage.front()) continue;
    const uint16_t own = stages_.kind_of_stage[s];
    StageKind kind = devices_.pieces.front().kind(stages_.contents[own], recomputed_layers[s]);
    kind.devices = stages_.kinds[own].devices;
    const auto alike = std::find(first.kinds.begin(), first.kinds.end(), kind);
    row.push_back(uint16_t(alike - first.kinds.begin()));
    if (alike == first.kinds.end()) first.kinds.push_back(kind);
  }
  first.kind_of_stage = row;
  first.rank_of_stage.assign(row.size(), 0);
  return bound_s(first);
}

double FittedBounds::bound_s() const {
  return bound_s(stage_kinds(devices_, layout_, stages_.rank_of_stage));
}

double FittedBounds::bound_s(const StageKinds& stages) const {
  KindCosts costs;
  StepPricer(devices_, split_.pieces, problem_.model, layout_, StepPricer::Part::whole_step, &states_)
      .price(stages, Recompute::full, costs);
  return lower_bounds_s(layout_, costs, stages, micro_batches(layout_, problem_.workload),
                        contention_of(problem_, layout_).best(layout_.pipeline))
      .of(find_schedule(layout_.schedule, "layout"));
}

}  // namespace mpt::planner
