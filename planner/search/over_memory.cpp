// SPDX-License-Identifier: Apache-2.0
#include "planner/search/over_memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace mpt::planner {
namespace {

// Lowest floors kept per split: enough that the exact least is nearly always among them.
constexpr size_t kMissesKept = 8;

}  // namespace

std::string OverMemory::name_of(const Layout& l) {
  std::string name = fmt::format("tp{}", l.tensor);
  if (l.context > 1) name += fmt::format(" cp{}", l.context);
  name += fmt::format(" pp{} dp{}", l.pipeline, l.data);
  return l.expert > 1 ? name + fmt::format(" ep{}", l.expert) : name;
}

void OverMemory::add(const Layout& layout, double floor_bytes, int64_t count) {
  Split& split = families_[name_of(layout)];
  split.count += count;
  if (split.misses.size() == kMissesKept && split.misses.back().needed <= floor_bytes) return;
  const auto at =
      std::upper_bound(split.misses.begin(), split.misses.end(), floor_bytes,
                       [](double bytes, const Miss& miss) { return bytes < miss.needed; });
  split.misses.insert(at, Miss{floor_bytes, layout, {}});
  if (split.misses.size() > kMissesKept) split.misses.pop_back();
}

std::vector<MemoryFamily> OverMemory::nearest(const SearchProblem& problem, size_t most) {
  const auto least = [](Split& split) -> Miss& {
    return *std::min_element(split.misses.begin(), split.misses.end(),
                             [](const Miss& a, const Miss& b) { return a.needed < b.needed; });
  };
  std::vector<MemoryFamily> out;
  while (!families_.empty() && out.size() < most) {
    const auto split = std::min_element(families_.begin(), families_.end(), [&](auto& a, auto& b) {
      return least(a.second).needed < least(b.second).needed;
    });
    Miss& miss = least(split->second);
    if (!miss.rejection) {
      // Exact, it may no longer be the nearest.
      miss.rejection = exact_memory_rejection(problem, estimate(problem, miss.layout));
      if (miss.rejection) {
        miss.needed = miss.rejection->needed;
        continue;
      }
      split->second.misses.erase(split->second.misses.begin() + (&miss - split->second.misses.data()));
      if (split->second.misses.empty()) families_.erase(split);
      continue;
    }
    out.push_back({split->first, split->second.count, std::move(*miss.rejection), std::move(miss.layout)});
    families_.erase(split);
  }
  return out;
}

}  // namespace mpt::planner
