// SPDX-License-Identifier: Apache-2.0
#include "planner/search/over_memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace mpt::planner {
namespace {

// Families kept of a split: those with the lowest floors, where the nearest miss is looked for.
constexpr size_t kFamiliesKept = 128;

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
  const auto most_on_top = [](const Miss& a, const Miss& b) { return a.needed < b.needed; };
  Split& split = splits_[key_of(family.layout)];
  split.count += count;
  if (split.misses.size() == kFamiliesKept) {
    if (split.misses.front().needed <= floor_bytes) return;
    std::pop_heap(split.misses.begin(), split.misses.end(), most_on_top);
    split.misses.pop_back();
  }
  split.misses.push_back({floor_bytes, family, Known::family_floor, {}});
  std::push_heap(split.misses.begin(), split.misses.end(), most_on_top);
}

void OverMemory::count_one(const Family& family) { ++splits_[key_of(family.layout)].count; }

void OverMemory::open(const Family& family, std::vector<Miss>& heap) {
  for (const Member& member : members_of(problem_, family)) {
    if (member.recompute == RecomputeChoice::fitted) continue;
    Miss miss{0.0, family, Known::member_floor, member};
    miss.needed = double(estimate_of(miss).floor_bytes);
    heap.push_back(std::move(miss));
    std::push_heap(heap.begin(), heap.end());
  }
}

Estimate OverMemory::estimate_of(const Miss& miss) {
  const Layout layout = resolver_.layout(miss.family, miss.member);
  return estimate(problem_, *resolver_.split_of(layout), layout);
}

std::vector<MemoryFamily> OverMemory::nearest(size_t most) {
  std::vector<MemoryFamily> told;
  std::set<SplitKey> done;
  std::vector<Miss> heap;
  for (auto& [key, split] : splits_) {
    std::move(split.misses.begin(), split.misses.end(), std::back_inserter(heap));
    split.misses.clear();
  }
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty() && told.size() < most) {
    std::pop_heap(heap.begin(), heap.end());
    Miss miss = std::move(heap.back());
    heap.pop_back();
    const SplitKey key = key_of(miss.family.layout);
    if (done.count(key) > 0) continue;
    if (miss.known == Known::family_floor) {
      open(miss.family, heap);
      continue;
    }
    Estimate e = estimate_of(miss);
    const auto rejection = exact_memory_rejection(problem_, e);
    if (!rejection) continue;  // a member of an opened family that fits after all
    if (miss.known == Known::exact) {
      done.insert(key);
      told.push_back({name_of(key), splits_[key].count, *rejection, std::move(e.layout)});
      continue;
    }
    miss.known = Known::exact;
    miss.needed = rejection->needed;
    heap.push_back(std::move(miss));
    std::push_heap(heap.begin(), heap.end());
  }
  return told;
}

}  // namespace mpt::planner
