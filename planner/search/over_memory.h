// SPDX-License-Identifier: Apache-2.0
#pragma once

// OverMemory: the layouts of a search that do not fit, and the nearest miss of each split among them. What
// they need is first known from below, for whole families at once, and made exact best first, so that only
// those that people read cost anything.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "planner/search/layout_resolver.h"
#include "planner/search/search.h"

namespace mpt::planner {

class OverMemory {
 public:
  OverMemory(const SearchProblem& problem, const std::vector<Family>& families, LayoutResolver& resolver)
      : problem_(problem), families_(families), resolver_(resolver) {}

  /// All `count` members of a family need `floor_bytes` or more.
  void add_family(uint32_t family, double floor_bytes, int64_t count);
  /// One member needs `needed_bytes` or more. Fitted recompute that does not fit is full recompute.
  void add_member(uint32_t family, const Member& member, double needed_bytes);

  /// The splits with the nearest misses, at most `most`, nearest first.
  std::vector<MemoryFamily> nearest(size_t most);
  int64_t splits() const { return int64_t(count_by_split().size()); }

 private:
  enum class Known : uint8_t { family_floor, member_floor, exact };
  struct Miss {
    double needed;
    uint32_t family;
    Known known;
    Member member;
    bool operator<(const Miss& other) const { return needed > other.needed; }  // a heap's top is the least
  };
  static std::string split_name(const Layout& layout);
  std::map<std::string, int64_t> count_by_split() const;
  void open(uint32_t family, std::vector<Miss>& heap);
  Estimate estimate_of(const Miss& miss);

  const SearchProblem& problem_;
  const std::vector<Family>& families_;
  LayoutResolver& resolver_;
  std::map<uint32_t, int64_t> count_;  // by family
  std::vector<Miss> misses_;
};

}  // namespace mpt::planner
