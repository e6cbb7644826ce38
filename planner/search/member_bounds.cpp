// SPDX-License-Identifier: Apache-2.0
#include "planner/search/member_bounds.h"

#include <map>
#include <tuple>

namespace mpt::planner {

MemberList::MemberList(std::vector<Member> all) : members(std::move(all)) {
  // By chunks, division into stages, recompute and placement. What is fitted later stands as no recompute.
  std::map<std::tuple<uint16_t, StageSplit, Recompute, bool>, uint16_t> known;
  for (const Member& member : members) {
    const auto [at, fresh] =
        known.try_emplace({member.chunks, member.split, least_recompute(member.recompute), in_rounds(member)},
                          uint16_t(known.size()));
    price_of_member.push_back(at->second);
  }
  prices = known.size();
}

MemberBounds::MemberBounds(const SearchProblem& problem, LayoutResolver& resolver, const Layout& layout,
                           const MemberList& list, StepPricer::Part part)
    : resolver_(resolver),
      layout_(layout),
      list_(list),
      split_(resolver.split_of(layout)),
      devices_(devices_of(problem, *split_, layout)),
      pricer_(devices_, split_->pieces, problem.model, layout, part),
      micro_batches_(micro_batches(layout, problem.workload)),
      best_rate_(contention_of(problem, layout).best(layout.pipeline)),
      prices_(list.prices) {}

std::optional<double> MemberBounds::bound_s(size_t m) {
  const Member& member = list_.members[m];
  Price& known = prices_[list_.price_of_member[m]];
  if (!known.known) known = price(member);
  if (known.twin) return std::nullopt;
  return known.bounds.of(schedule_catalog()[member.schedule]);
}

MemberBounds::Price MemberBounds::price(const Member& member) {
  const StageKinds* stages = resolver_.stages(layout_, member);
  if (stages == nullptr) return {true, true, {}};
  pricer_.price(*stages, least_recompute(member.recompute), cost_);
  return {true, false, lower_bounds_s(layout_, cost_, stages->rank_of_stage, micro_batches_, best_rate_)};
}

}  // namespace mpt::planner
