// SPDX-License-Identifier: Apache-2.0
#include "planner/search/member_fits.h"

#include <algorithm>

namespace mpt::planner {

MemberFits::MemberFits(const SearchProblem& problem, LayoutResolver& resolver, const Layout& layout,
                       const MemberList& list)
    : resolver_(resolver),
      list_(list),
      split_(resolver.split_of(layout)),
      layout_(layout),
      limits_(limits_of_ranks(problem, layout)),
      known_(list.divisions) {}

bool MemberFits::fits(size_t m, const StageKinds& stages) {
  const Member& member = list_.members[m];
  const Recompute recompute = recompute_of(member.recompute);
  Known& known = known_[list_.division_of_member[m]][size_t(recompute)];
  layout_.chunks = member.chunks;
  layout_.recompute = recompute;
  if (known.footprints.empty()) {
    for (const StageContent& content : stages.contents)
      known.footprints.push_back(split_->pieces.footprint(layout_, content, 0));
    known.above_floors = above_floors(known, stages);
  }
  if (!known.above_floors) return false;
  const std::vector<ScheduleEntry>& entries = schedule_catalog();
  if (!entries[member.schedule].made_to_measure) return fits(member.schedule, known, stages);
  if (member.recompute == RecomputeChoice::fitted)
    return fits(size_t(&leanest_schedule(entries[member.schedule], member.chunks) - entries.data()), known,
                stages);
  for (size_t named = 0; named < entries.size(); ++named) {
    const ScheduleEntry& entry = entries[named];
    if (entry.made_to_measure || member.chunks < entry.min_chunks || member.chunks > entry.max_chunks)
      continue;
    if (entry.placement(int(layout_.pipeline), member.chunks) == stages.rank_of_stage &&
        fits(named, known, stages))
      return true;
  }
  return false;
}

// Whatever the schedule, as memory_floors() says: the state, and one micro-batch in one stage.
bool MemberFits::above_floors(const Known& known, const StageKinds& stages) const {
  std::vector<int64_t> floors;
  for (const std::vector<uint16_t>& row : stages.rows) {
    int64_t statics = 0, activations = 0;
    for (const uint16_t kind : row) {
      const StageFootprint& f = known.footprints[kind];
      statics += f.static_bytes();
      activations = std::max(activations,
                             f.saved_bytes + std::max(f.forward_workspace_bytes, f.backward_workspace_bytes));
    }
    floors.push_back(statics + activations);
  }
  for (size_t r = 0; r < limits_.size(); ++r) {
    if (floors[stages.row_of_rank[r]] > limits_[r]) return false;
  }
  return true;
}

bool MemberFits::fits(size_t schedule, Known& known, const StageKinds& stages) {
  const uint32_t bit = uint32_t(1) << schedule;
  if ((known.asked & bit) == 0) {
    known.asked |= bit;
    layout_.schedule = schedule_catalog()[schedule].name;
    if (resolver_.peaks(layout_)->fit({known.footprints, stages.kind_of_stage}, limits_)) known.fit |= bit;
  }
  return (known.fit & bit) != 0;
}

}  // namespace mpt::planner
