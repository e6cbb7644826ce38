// SPDX-License-Identifier: Apache-2.0
#include "planner/search/member_fits.h"

#include <algorithm>

namespace mpt::planner {

MemberFits::MemberFits(const SearchProblem& problem, LayoutResolver& resolver, const Layout& layout,
                       const MemberList& list, bool makes_schedules)
    : programs_(resolver.programs()),
      makes_schedules_(makes_schedules),
      micro_batches_(micro_batches(layout, problem.workload)),
      list_(list),
      split_(resolver.split_of(layout)),
      layout_(layout),
      limits_(limits_of_ranks(problem, layout)),
      known_(list.divisions) {}

MemberFits::Fits MemberFits::fits(size_t m, const StageKinds& stages) {
  const Member& member = list_.members[m];
  const Recompute recompute = recompute_of(member.recompute);
  Known& known = known_[list_.division_of_member[m]][size_t(recompute)];
  layout_.chunks = member.chunks;
  layout_.recompute = recompute;
  if (known.footprints.empty()) {
    for (const StageContent& content : stages.contents)
      known.footprints.push_back(split_->pieces.footprint(layout_, content, 0));
    known.above_floors = above_floors(known, stages);
    known.fits.resize(schedule_catalog().size());
  }
  if (!known.above_floors) return Fits::no;
  const std::vector<ScheduleEntry>& entries = schedule_catalog();
  if (!entries[member.schedule].made_to_measure) return fits(member.schedule, known, stages);
  if (member.recompute == RecomputeChoice::fitted)
    return fits(size_t(&leanest_schedule(entries[member.schedule], member.chunks) - entries.data()), known,
                stages);
  Fits best = Fits::no;
  for (size_t named = 0; named < entries.size() && best != Fits::yes; ++named) {
    const ScheduleEntry& entry = entries[named];
    if (entry.made_to_measure || member.chunks < entry.min_chunks || member.chunks > entry.max_chunks)
      continue;
    if (entry.placement(int(layout_.pipeline), member.chunks) != stages.rank_of_stage) continue;
    if (const Fits fits = this->fits(named, known, stages); fits != Fits::no) best = fits;
  }
  return best;
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

MemberFits::Fits MemberFits::fits(size_t schedule, Known& known, const StageKinds& stages) {
  std::optional<Fits>& fits = known.fits[schedule];
  if (fits) return *fits;
  layout_.schedule = schedule_catalog()[schedule].name;
  const auto peaks = makes_schedules_ ? programs_.peaks(layout_, micro_batches_)
                                      : programs_.known_peaks(layout_, micro_batches_);
  fits = peaks == nullptr                                                ? Fits::unknown
         : peaks->fit({known.footprints, stages.kind_of_stage}, limits_) ? Fits::yes
                                                                         : Fits::no;
  return *fits;
}

}  // namespace mpt::planner
