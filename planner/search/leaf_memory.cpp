// SPDX-License-Identifier: Apache-2.0
#include "planner/search/leaf_memory.h"

#include "planner/memory/memory_model.h"

namespace mpt::planner {

LeafMemory::LeafMemory(const SearchProblem& problem, LayoutResolver& resolver, const Layout& node,
                       const LeafList& list, bool makes_schedules)
    : programs_(resolver.programs()),
      makes_schedules_(makes_schedules),
      micro_batches_(micro_batches(node, problem.workload)),
      list_(list),
      split_(resolver.prices().split(node)),
      layout_(node),
      problem_(problem),
      divisions_(list.divisions) {}

LeafMemory::Fits LeafMemory::fits(size_t l, const StageKinds& stages) {
  const Leaf& leaf = list_.leaves[l];
  const Recompute recompute = recompute_of(leaf.recompute);
  DivisionMemory& division = divisions_[list_.division_of_leaf[l]][size_t(recompute)];
  layout_.chunks = leaf.chunks;
  layout_.recompute = recompute;
  if (division.footprints.empty()) {
    for (const StageContent& content : stages.contents)
      division.footprints.push_back(split_.pieces.footprint(layout_, content, 0));
    layout_.schedule = schedule_catalog()[leaf.schedule].name;  // all of the division have its placement
    division.limits = limits_of_ranks(problem_, layout_);
    division.above_floors = above_floors(division, division.limits, stages);
    division.fits.resize(schedule_catalog().size());
  }
  if (!division.above_floors) return Fits::no;
  const std::vector<ScheduleEntry>& entries = schedule_catalog();
  if (!entries[leaf.schedule].made_to_measure) return fits(leaf.schedule, division, stages);
  if (leaf.recompute == RecomputeChoice::fitted)
    return fits(size_t(&leanest_schedule(entries[leaf.schedule], leaf.chunks) - entries.data()), division,
                stages);
  return fits_made(leaf, division, stages);
}

bool LeafMemory::may_fit(const SearchProblem& roomier, size_t l, const StageKinds& stages) const {
  const Leaf& leaf = list_.leaves[l];
  const DivisionMemory& division =
      divisions_[list_.division_of_leaf[l]][size_t(recompute_of(leaf.recompute))];
  const ScheduleEntry& entry = schedule_catalog()[leaf.schedule];
  Layout layout = layout_;
  layout.chunks = leaf.chunks;
  layout.schedule = entry.name;
  const std::vector<int64_t> limits = limits_of_ranks(roomier, layout);
  if (!above_floors(division, limits, stages)) return false;
  if (entry.made_to_measure) return true;
  const auto peaks = programs_.known_peaks(layout, micro_batches_);
  return peaks == nullptr || peaks->fit({division.footprints, stages.kind_of_stage}, limits);
}

LeafMemory::Fits LeafMemory::fits_made(const Leaf& leaf, DivisionMemory& division, const StageKinds& stages) {
  const std::vector<ScheduleEntry>& entries = schedule_catalog();
  Fits best = Fits::no;
  for (size_t named = 0; named < entries.size() && best != Fits::yes; ++named) {
    const ScheduleEntry& entry = entries[named];
    if (entry.made_to_measure || leaf.chunks < entry.min_chunks || leaf.chunks > entry.max_chunks) continue;
    if (entry.placement(int(layout_.pipeline), leaf.chunks) != stages.rank_of_stage) continue;
    if (const Fits fits = this->fits(named, division, stages); fits != Fits::no) best = fits;
  }
  return best;
}

// Whatever the schedule, as memory_floors() says: the state, and one micro-batch in one stage.
bool LeafMemory::above_floors(const DivisionMemory& division, const std::vector<int64_t>& limits,
                              const StageKinds& stages) {
  std::vector<int64_t> floors;
  for (const std::vector<uint16_t>& row : stages.rows) {
    MemoryFloor floor;
    for (const uint16_t kind : row) floor.add(division.footprints[kind]);
    floors.push_back(floor.bytes());
  }
  for (size_t r = 0; r < limits.size(); ++r)
    if (floors[stages.row_of_rank[r]] > limits[r]) return false;
  return true;
}

LeafMemory::Fits LeafMemory::fits(size_t schedule, DivisionMemory& division, const StageKinds& stages) {
  std::optional<Fits>& fits = division.fits[schedule];
  if (fits) return *fits;
  layout_.schedule = schedule_catalog()[schedule].name;
  const auto peaks = makes_schedules_ ? programs_.peaks(layout_, micro_batches_)
                                      : programs_.known_peaks(layout_, micro_batches_);
  fits = peaks == nullptr                                                           ? Fits::unknown
         : peaks->fit({division.footprints, stages.kind_of_stage}, division.limits) ? Fits::yes
                                                                                    : Fits::no;
  return *fits;
}

}  // namespace mpt::planner
