// SPDX-License-Identifier: Apache-2.0
#include "planner/search/over_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "planner/memory/memory_model.h"
#include "planner/search/family_bound.h"
#include "planner/search/made_to_measure.h"

namespace mpt::planner {
namespace {

// Families kept of a split: those with the lowest floors, where the nearest miss is looked for.
constexpr size_t kFamiliesKept = 128;

// A schedule made to measure needs what a named one needs, which says more.
bool stands_for_named(const SearchProblem& problem, const Member& member) {
  const ScheduleEntry& entry = schedule_catalog()[member.schedule];
  return entry.made_to_measure && has_schedule(problem, leanest_schedule(entry, member.chunks).name);
}

}  // namespace

OverMemory::SplitKey OverMemory::key_of(const Layout& l) {
  return {l.tensor, l.context, l.pipeline, l.data, l.expert};
}

std::string OverMemory::name_of(const SplitKey& key) {
  const auto [tensor, context, pipeline, data, expert] = key;
  std::string name = fmt::format("tp{}", tensor);
  if (context > 1) name += fmt::format(" cp{}", context);
  name += fmt::format(" pp{} dp{}", pipeline, data);
  return expert > 1 ? name + fmt::format(" ep{}", expert) : name;
}

void OverMemory::add(const Family& family, double floor_bytes, int64_t count) {
  add(Miss{floor_bytes, family, Known::family_floor, {}}, count);
}

void OverMemory::add_group(const Layout& group, double floor_bytes, int64_t count) {
  add(Miss{floor_bytes, {group}, Known::group_floor, {}}, count);
}

void OverMemory::add(Miss miss, int64_t count) {
  const auto most_on_top = [](const Miss& a, const Miss& b) { return a.needed < b.needed; };
  Split& split = splits_[key_of(miss.family.layout)];
  split.count += count;
  if (split.misses.size() == kFamiliesKept) {
    if (split.misses.front().needed <= miss.needed) return;
    std::pop_heap(split.misses.begin(), split.misses.end(), most_on_top);
    split.misses.pop_back();
  }
  split.misses.push_back(std::move(miss));
  std::push_heap(split.misses.begin(), split.misses.end(), most_on_top);
}

void OverMemory::count_one(const Layout& group) { ++splits_[key_of(group)].count; }

std::vector<OverMemory::Miss> OverMemory::families_in(const Miss& group) {
  std::vector<Miss> misses;
  for (const Sharding& sharding : shardings_of(problem_, group.family.layout)) {
    Miss miss{0.0, family_of(group.family.layout, sharding), Known::family_floor, {}};
    miss.needed = family_bound(problem_, miss.family, *resolver_.split_of(miss.family.layout)).floor_bytes;
    misses.push_back(std::move(miss));
  }
  return misses;
}

void OverMemory::open(const Family& family, std::vector<Miss>& heap) {
  for (const Member& member : members_of(problem_, family)) {
    if (member.recompute == RecomputeChoice::fitted || stands_for_named(problem_, member)) continue;
    Miss miss{0.0, family, Known::member_floor, member};
    const Layout layout = resolver_.layout(family, member);
    const auto placement =
        find_schedule(layout.schedule, "layout").placement(int(layout.pipeline), int(layout.chunks));
    miss.needed = needed(layout, memory_floors(layout, placement, resolver_.footprints(layout)));
    heap.push_back(std::move(miss));
    std::push_heap(heap.begin(), heap.end());
  }
}

std::optional<Rejection> OverMemory::rejection(const Layout& layout) {
  return exact_memory_rejection(problem_, estimate(problem_, *resolver_.split_of(layout), layout));
}

// What the largest device would need to have: the ranks' limits differ where their devices do.
double OverMemory::needed(const Layout& layout, const std::vector<int64_t>& peaks) const {
  return double(problem_.memory_limit_bytes + excess_bytes(peaks, limits_of_ranks(problem_, layout)));
}

bool OverMemory::raise(Miss& miss) {
  const Layout layout = resolver_.layout(miss.family, miss.member);
  if (schedule_catalog()[miss.member.schedule].made_to_measure) {
    const std::optional<Rejection> rejection = this->rejection(layout);
    if (!rejection) return false;
    miss.needed = double(problem_.memory_limit_bytes) + rejection->needed - rejection->available;
  } else {
    miss.needed = needed(layout, resolver_.peaks(layout)->peak_bytes(resolver_.footprints(layout)));
    if (miss.needed <= double(problem_.memory_limit_bytes)) return false;
  }
  miss.known = Known::exact;
  return true;
}

MemoryFamily OverMemory::told(const Miss& miss) {
  Layout layout = resolver_.layout(miss.family, miss.member);
  const Rejection rejection = *this->rejection(layout);
  const SplitKey key = key_of(miss.family.layout);
  return {name_of(key), splits_[key].count, rejection, std::move(layout)};
}

std::optional<MemoryFamily> OverMemory::least() {
  // The first exact one is the least of all; where that takes too long, the least that is exact by then.
  constexpr double kLongest = 5.0;
  const double start_s = now_s();
  std::optional<Miss> best;
  std::vector<Miss> heap;
  for (auto& [key, split] : splits_)
    std::copy(split.misses.begin(), split.misses.end(), std::back_inserter(heap));
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    if (best && now_s() - start_s > kLongest) break;
    std::pop_heap(heap.begin(), heap.end());
    Miss miss = std::move(heap.back());
    heap.pop_back();
    if (miss.known == Known::exact) return told(miss);
    std::vector<Miss> opened;
    if (miss.known == Known::group_floor) {
      opened = families_in(miss);
    } else if (miss.known == Known::family_floor) {
      open(miss.family, opened);
    } else if (raise(miss)) {
      if (miss.known == Known::exact && (!best || miss.needed < best->needed)) best = miss;
      opened.push_back(std::move(miss));
    }
    for (Miss& next : opened) {
      heap.push_back(std::move(next));
      std::push_heap(heap.begin(), heap.end());
    }
  }
  return best ? std::optional(told(*best)) : std::nullopt;
}

std::vector<MemoryFamily> OverMemory::near_misses(size_t most) {
  constexpr size_t kFamiliesOpened = 2;
  const size_t splits_opened = 2 * most;
  std::vector<Split*> splits;
  for (auto& [key, split] : splits_) {
    // Lowest floors first.
    std::sort(split.misses.begin(), split.misses.end(),
              [](const Miss& a, const Miss& b) { return a.needed < b.needed; });
    if (!split.misses.empty()) splits.push_back(&split);
  }
  std::stable_sort(splits.begin(), splits.end(), [](const Split* a, const Split* b) {
    return a->misses.front().needed < b->misses.front().needed;
  });
  std::vector<MemoryFamily> out;
  for (Split* split : splits) {
    if (out.size() == splits_opened) break;
    std::vector<Miss> families, members;
    for (size_t f = 0; f < split->misses.size() && f < kFamiliesOpened; ++f) {
      const Miss& miss = split->misses[f];
      const auto inside = miss.known == Known::group_floor ? families_in(miss) : std::vector{miss};
      families.insert(families.end(), inside.begin(), inside.end());
    }
    std::stable_sort(families.begin(), families.end(),
                     [](const Miss& a, const Miss& b) { return a.needed < b.needed; });
    for (size_t f = 0; f < families.size() && f < kFamiliesOpened; ++f) open(families[f].family, members);
    // Of a family's members those with full recompute and few chunks need least; which of them, the schedule
    // decides.
    std::erase_if(members, [&](const Miss& m) {
      return m.member.recompute != RecomputeChoice::full ||
             m.member.chunks > members.front().member.chunks + 1;
    });
    std::erase_if(members, [&](Miss& m) { return !raise(m); });
    const auto miss = std::min_element(members.begin(), members.end(),
                                       [](const Miss& a, const Miss& b) { return a.needed < b.needed; });
    if (miss != members.end()) out.push_back(told(*miss));
  }
  std::stable_sort(out.begin(), out.end(), [](const MemoryFamily& a, const MemoryFamily& b) {
    return a.nearest.needed < b.nearest.needed;
  });
  if (out.size() > most) out.erase(out.begin() + ptrdiff_t(most), out.end());
  return out;
}

}  // namespace mpt::planner
