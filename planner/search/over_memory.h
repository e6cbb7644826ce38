// SPDX-License-Identifier: Apache-2.0
#pragma once

// OverMemory: the layouts of a search that do not fit, and the nearest miss of each split among them. What
// they need is first known from below, for whole families at once, and made exact best first, so that only
// those that people read cost anything.

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/search/layout_resolver.h"
#include "planner/search/search.h"

namespace mpt::planner {

class OverMemory {
 public:
  OverMemory(const SearchProblem& problem, LayoutResolver& resolver)
      : problem_(problem), resolver_(resolver) {}

  /// `count` members of a family do not fit; all of its members need `floor_bytes` or more. A family may be
  /// added once with its members' misses still to be counted by count_one().
  void add(const Family& family, double floor_bytes, int64_t count);
  /// The same of all families of a group.
  void add_group(const Layout& group, double floor_bytes, int64_t count);
  void count_one(const Layout& group);

  /// The layout that needs least of all, exactly: to be asked where nothing fits. In a space so large that
  /// this takes seconds, one that needs little.
  std::optional<MemoryFamily> least();
  /// For `most` of the splits that seem nearest: a near miss of each, which is a layout with its exact need,
  /// but not surely the split's nearest. Those that need least come first.
  std::vector<MemoryFamily> near_misses(size_t most);
  int64_t splits() const { return int64_t(splits_.size()); }

 private:
  enum class Known : uint8_t { group_floor, family_floor, member_floor, exact };
  struct Miss {
    double needed;
    Family family;
    Known known;
    Member member;
    bool operator<(const Miss& other) const { return needed > other.needed; }  // a heap's top is the least
  };
  // Tensor, context, pipeline, data, expert.
  using SplitKey = std::array<int64_t, 5>;
  struct Split {
    int64_t count = 0;
    std::vector<Miss> misses;  // families and groups; a heap of those that need least, the most on top
  };
  static SplitKey key_of(const Layout& layout);
  static std::string name_of(const SplitKey& key);
  void add(Miss miss, int64_t count);
  double needed(const Layout& layout, const std::vector<int64_t>& peaks) const;
  std::vector<Miss> families_in(const Miss& group);
  void open(const Family& family, std::vector<Miss>& heap);
  std::optional<Rejection> rejection(const Layout& layout);
  /// Makes what the miss needs known one step better; false where the member fits after all.
  bool raise(Miss& miss);
  MemoryFamily told(const Miss& miss);

  const SearchProblem& problem_;
  LayoutResolver& resolver_;
  std::map<SplitKey, Split> splits_;
};

}  // namespace mpt::planner
