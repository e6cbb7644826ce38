// SPDX-License-Identifier: Apache-2.0
#pragma once

// NearMisses: the layouts of a search that do not fit, and the nearest miss of each split among them. First
// only floors are known, for whole nodes at once. Exact peaks are worked out best first, so that only the few
// that people read cost time.

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/search/layout_resolver.h"
#include "planner/search/node.h"
#include "planner/search/search_result.h"

namespace mpt::planner {

class NearMisses {
 public:
  NearMisses(const SearchProblem& problem, LayoutResolver& resolver)
      : problem_(problem), resolver_(resolver) {}

  /// `count` layouts below an inner node do not fit; all layouts below it need `floor_bytes` or more. A node
  /// of sharding may be added once with its leaves still to be counted by count_one().
  void add(Level level, const Layout& node, double floor_bytes, int64_t count);
  void count_one(const Layout& node);

  /// The layout that needs least of all, exactly: to be asked where nothing fits. In a space so large that
  /// this takes seconds, one that needs little.
  std::optional<NearMiss> least();
  /// For `most` of the splits that seem nearest: a near miss of each, which is a layout with its exact need,
  /// but not surely the split's nearest. Those that need least come first.
  std::vector<NearMiss> nearest(size_t most);
  int64_t splits() const { return int64_t(splits_.size()); }

 private:
  // An inner node or a leaf, with the least memory that its layouts need.
  struct Miss {
    double needed = 0.0;
    Level level = Level::sharding;
    bool exact = false;
    Layout node;  // the leaf's parent, where it is a leaf
    Leaf leaf;
    int64_t number = 0;  // by which equal needs are told apart, as libraries sort and heap them differently
    bool needs_less(const Miss& other) const {
      return needed < other.needed || (needed == other.needed && number < other.number);
    }
    bool operator<(const Miss& other) const { return other.needs_less(*this); }  // a heap's top is the least
  };
  struct Split {
    std::array<int64_t, 5> degrees{};  // tensor, context, pipeline, data, expert
    int64_t count = 0;
    std::vector<Miss> misses;  // inner nodes; a heap of those that need least, the most on top
    std::string name() const;
  };
  Split& split_of(const Layout& layout);
  double needed(const Layout& layout, const std::vector<int64_t>& peaks) const;
  std::vector<Miss> expand(const Miss& miss);
  std::vector<Miss> shardings(const Miss& degrees);
  void add_leaves(const Miss& sharding, std::vector<Miss>& heap);
  std::optional<Miss> nearest_of(const Split& split);
  std::optional<Rejection> rejection(const Layout& layout);
  /// Replaces the floor of a leaf by its peak; false where it fits after all.
  bool make_exact(Miss& leaf);
  NearMiss told(const Miss& leaf);

  const SearchProblem& problem_;
  LayoutResolver& resolver_;
  std::map<std::array<int64_t, 5>, Split> splits_;
  int64_t made_ = 0;  // misses
};

}  // namespace mpt::planner
