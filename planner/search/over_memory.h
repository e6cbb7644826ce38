// SPDX-License-Identifier: Apache-2.0
#pragma once

// OverMemory: the layouts of a search that do not fit, counted by split. What they need is first known from
// below and made exact only for those that people read.

#include <map>
#include <string>
#include <vector>

#include "planner/search/search.h"

namespace mpt::planner {

class OverMemory {
 public:
  /// `count` layouts of one split, of which `layout` needs the least: `floor_bytes` or more.
  void add(const Layout& layout, double floor_bytes, int64_t count);

  /// The splits with the nearest misses, at most `most`, nearest first.
  std::vector<MemoryFamily> nearest(const SearchProblem& problem, size_t most);
  size_t families() const { return families_.size(); }

 private:
  struct Miss {
    double needed;
    Layout layout;
    std::optional<Rejection> rejection;  // set once it is exact
  };
  struct Split {
    int64_t count = 0;
    std::vector<Miss> misses;  // a few with the lowest floors, lowest first
  };
  static std::string name_of(const Layout& layout);

  std::map<std::string, Split> families_;
};

}  // namespace mpt::planner
