// SPDX-License-Identifier: Apache-2.0
#include "planner/search/over_memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace mpt::planner {

std::string OverMemory::split_name(const Layout& l) {
  std::string name = fmt::format("tp{}", l.tensor);
  if (l.context > 1) name += fmt::format(" cp{}", l.context);
  name += fmt::format(" pp{} dp{}", l.pipeline, l.data);
  return l.expert > 1 ? name + fmt::format(" ep{}", l.expert) : name;
}

void OverMemory::add_family(uint32_t family, double floor_bytes, int64_t count) {
  count_[family] += count;
  misses_.push_back({floor_bytes, family, Known::family_floor, {}});
}

void OverMemory::add_member(uint32_t family, const Member& member, double needed_bytes) {
  ++count_[family];
  if (member.recompute == RecomputeChoice::fitted) return;  // the same member with full recompute stands for it
  misses_.push_back({needed_bytes, family, Known::member_floor, member});
}

std::map<std::string, int64_t> OverMemory::count_by_split() const {
  std::map<std::string, int64_t> counts;
  for (const auto& [family, count] : count_) counts[split_name(families_[family].layout)] += count;
  return counts;
}

void OverMemory::open(uint32_t family, std::vector<Miss>& heap) {
  for (const Member& member : members_of(problem_, families_[family])) {
    if (member.recompute == RecomputeChoice::fitted) continue;
    Miss miss{0.0, family, Known::member_floor, member};
    miss.needed = double(estimate_of(miss).floor_bytes);
    heap.push_back(miss);
    std::push_heap(heap.begin(), heap.end());
  }
}

Estimate OverMemory::estimate_of(const Miss& miss) {
  const Layout layout = resolver_.layout(families_[miss.family], miss.member);
  return estimate(problem_, *resolver_.split_of(layout), layout);
}

std::vector<MemoryFamily> OverMemory::nearest(size_t most) {
  const auto counts = count_by_split();
  std::vector<MemoryFamily> told;
  std::set<std::string> names;
  std::vector<Miss> heap = std::move(misses_);
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty() && told.size() < most) {
    std::pop_heap(heap.begin(), heap.end());
    Miss miss = heap.back();
    heap.pop_back();
    const std::string name = split_name(families_[miss.family].layout);
    if (names.count(name) > 0) continue;
    if (miss.known == Known::family_floor) {
      open(miss.family, heap);
      continue;
    }
    Estimate e = estimate_of(miss);
    const auto rejection = exact_memory_rejection(problem_, e);
    if (!rejection) continue;  // a member of an opened family that fits after all
    if (miss.known == Known::exact) {
      names.insert(name);
      told.push_back({name, counts.at(name), *rejection, std::move(e.layout)});
      continue;
    }
    miss.known = Known::exact;
    miss.needed = rejection->needed;
    heap.push_back(miss);
    std::push_heap(heap.begin(), heap.end());
  }
  return told;
}

}  // namespace mpt::planner
