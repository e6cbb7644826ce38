// SPDX-License-Identifier: Apache-2.0
#include "planner/search/member_bounds.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace mpt::planner {

MemberList::MemberList(std::vector<Member> all) : members(std::move(all)) {
  // By chunks, division into stages, recompute and placement. What is fitted later stands as no recompute.
  std::map<std::tuple<uint16_t, StageSplit, Recompute, bool>, uint16_t> known;
  std::map<std::tuple<uint16_t, StageSplit, bool>, uint16_t> known_divisions;
  for (const Member& member : members) {
    const auto [division, first] = known_divisions.try_emplace(
        {member.chunks, member.split, in_rounds(member)}, uint16_t(known_divisions.size()));
    division_of_member.push_back(division->second);
    const auto [at, fresh] =
        known.try_emplace({member.chunks, member.split, least_recompute(member.recompute), in_rounds(member)},
                          uint16_t(known.size()));
    price_of_member.push_back(at->second);
  }
  prices = known.size();
  divisions = known_divisions.size();
}

GroupBounds::GroupBounds(const SearchProblem& problem, LayoutResolver& resolver, const Layout& group,
                         const MemberList& list, const IsTooSlow& too_slow)
    : list_(list), prices_(list.prices), stages_(list.divisions, nullptr) {
  const SharedSplit split = resolver.split_of(group);
  const DeviceCosts devices = devices_of(problem, *split, group);
  StepPricer pricer(devices, split->pieces, problem.model, group, StepPricer::Part::micro_batches);
  const int64_t count = micro_batches(group, problem.workload);
  const Contention::Best best_rate = contention_of(problem, group).best(group.pipeline);
  KindCosts cost;
  for (size_t m = 0; m < list.members.size(); ++m) {
    const Member& member = list.members[m];
    Price& price = prices_[list.price_of_member[m]];
    if (price.known != Known::no) continue;
    if (too_slow(member)) {
      price.known = Known::too_slow;
      continue;
    }
    const StageKinds*& stages = stages_[list.division_of_member[m]];
    if (stages == nullptr) stages = resolver.stages(group, member);
    if (stages == nullptr) {
      price.known = Known::twin;
      continue;
    }
    pricer.price(*stages, least_recompute(member.recompute), cost);
    price = {Known::priced, micro_batch_bounds_s(group, cost, *stages, count, best_rate)};
  }
}

MemberBounds::MemberBounds(const SearchProblem& problem, LayoutResolver& resolver, const Layout& layout,
                           const MemberList& list, const GroupBounds& group)
    : list_(list),
      group_(group),
      layout_(layout),
      split_(resolver.split_of(layout)),
      devices_(devices_of(problem, *split_, layout)),
      known_(resolver.sharding_of(layout)),
      pricer_(devices_, split_->pieces, problem.model, layout, StepPricer::Part::whole_step, &known_.states),
      micro_batches_(micro_batches(layout, problem.workload)),
      best_rate_(contention_of(problem, layout).best(layout.pipeline)),
      rest_(list.divisions, nullptr),
      bounds_(list.prices) {}

double MemberBounds::least_s(size_t m) {
  const RestOfStep*& rest = rest_[list_.division_of_member[m]];
  if (rest == nullptr) {
    const auto [at, fresh] = known_.rest.try_emplace(&group_.stages(m));
    if (fresh) at->second = pricer_.least_rest(group_.stages(m), best_rate_.of_one);
    rest = &at->second;
  }
  return group_.micro_batches_s(m)
      .with(*rest, micro_batches_, best_rate_)
      .of(schedule_catalog()[list_.members[m].schedule]);
}

double MemberBounds::bound_s(size_t m) {
  const Member& member = list_.members[m];
  std::optional<StepBounds>& bounds = bounds_[list_.price_of_member[m]];
  if (!bounds) {
    pricer_.price(group_.stages(m), least_recompute(member.recompute), cost_);
    bounds = lower_bounds_s(layout_, cost_, group_.stages(m), micro_batches_, best_rate_);
  }
  return bounds->of(schedule_catalog()[member.schedule]);
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
