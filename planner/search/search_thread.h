// SPDX-License-Identifier: Apache-2.0
#pragma once

// SearchThread: the loop of branch and bound over one thread's part of the space.

#include <array>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/search/incumbent.h"
#include "planner/search/inner_bound.h"
#include "planner/search/leaf_bounds.h"
#include "planner/search/near_misses.h"
#include "planner/search/tiers.h"

namespace mpt::planner {

/// A search tells near misses of this many splits at most.
inline constexpr size_t kNearMissesTold = 6;

/// What the threads of a search have in common. All must outlive them.
struct SearchPart {
  const SearchProblem& problem;
  /// The same with more memory; null: nobody asks for it.
  const SearchProblem* roomier = nullptr;
  ResultLimits wanted;
  bool tells = false;  // whether what does not fit is looked into
};

/// Searches its part of the space, one of as many as there are threads. Splits stay whole, so that their near
/// misses are complete.
class SearchThread {
 public:
  /// `resolver`: nobody else uses it meanwhile.
  SearchThread(const SearchPart& part, size_t thread, LayoutResolver& resolver, SharedIncumbent& shared);

  void run();
  /// After run(): goes on with what more memory may make faster, for the one fastest layout. `next`: the
  /// part's roomier problem, or one with less memory, after which others may come.
  void run_roomier(const SearchProblem& next, SharedIncumbent& shared);
  bool optimal() const { return result_.certificate.optimal; }
  bool found() const { return !incumbents_.empty(); }
  /// Fastest first.
  const std::vector<Incumbent>& incumbents() const { return incumbents_; }
  /// Looks for near misses. Where nothing fits, only the layout that needs least is told.
  void tell_near_misses(bool nothing_fits);
  SearchResult take() { return std::move(result_); }
  /// Lists of leaves by what their nodes have in common.
  using LeafLists = std::map<std::tuple<int64_t, int64_t, bool, bool>, LeafList>;
  const LeafLists& leaf_lists() const { return leaves_; }

 private:
  /// Nothing slower is wanted, by the incumbents of this thread and of all others.
  double incumbent_s() const { return shared_->step_time_s(); }
  void count(const Tier& tier, int64_t layouts) { pruned_[size_t(&tier - tiers().data())] += layouts; }
  bool prunes_inner(Level level, const Layout& node, InnerBound bound, int64_t layouts);

  const LeafList& leaves(const Layout& node);
  LeafRunners combined(frameworks::Traits traits, const LeafList& list);
  void list_degrees(const Layout& layout, const std::vector<Sharding>& shardings);
  void add_degrees(const Layout& layout, const std::vector<Sharding>& shardings,
                   const std::vector<int64_t>& leaves);
  void add_sharding(size_t index, const Sharding& sharding, int64_t leaves);
  Layout sharding_layout(const Node& node) const;
  Layout leaf_layout(const Node& node);

  void walk();
  /// Whether nodes that memory prunes, and need so much, wait for run_roomier().
  bool waits_for_room(double floor_bytes) const {
    return roomier_ != nullptr && floor_bytes <= double(roomier_->memory_limit_bytes);
  }
  void expand(Node node);
  void add_leaf(const Node& parent, const Leaf& leaf, const LeafBounds& bounds, const Tier* memory);
  const DegreesBounds& degrees_bounds(uint32_t degrees);
  void fit(Node node);
  void simulate(const Node& node);
  void prune_leaf(const Tier& tier, const Node& node);
  void leave_out(int64_t layouts);
  void keep(Incumbent incumbent);

  bool go_on();
  double frontier_s() const;
  void finish();
  void prune_frontier();

  const SearchProblem* problem_;
  const SearchProblem* roomier_;
  ResultLimits wanted_;
  const size_t thread_, threads_;
  LayoutResolver& resolver_;
  SharedIncumbent* shared_;
  const frameworks::Traits model_traits_;
  // Where a good time is known from the start, nearly all that its bound leaves is looked at in the end.
  const bool makes_schedules_;

  std::vector<Layout> degrees_;                               // nodes that were not pruned
  std::vector<std::vector<Sharding>> shardings_;              // of each
  std::vector<std::optional<DegreesBounds>> degrees_bounds_;  // none until a child is expanded
  LeafLists leaves_;
  // Which frameworks combine traits of leaves with those of a node.
  std::map<frameworks::Traits, std::vector<std::pair<frameworks::Traits, Runners>>> combined_;
  std::vector<std::vector<int64_t>> fitted_;
  std::priority_queue<Node> frontier_;
  std::vector<Runners> runners_;  // frameworks that take each of degrees_
  bool listed_ = false;           // all sharding nodes of the space are in the frontier, or pruned
  int64_t waiting_ = 0;           // layouts below the frontier, and in the next
  std::vector<Node> too_large_;   // leaves that memory prunes, unless the bound of the last incumbent does
  const Tier* too_large_tier_ = nullptr;
  std::vector<Layout> degrees_for_room_;  // nodes that wait for run_roomier()
  std::vector<Node> nodes_for_room_;
  std::array<int64_t, kTiers> pruned_{};  // layouts by tier
  std::vector<Incumbent> incumbents_;     // fastest first
  std::vector<double> times_;             // theirs
  NearMisses near_misses_;
  std::set<std::pair<uint32_t, uint16_t>> missed_;  // nodes of sharding that are among them
  SimulatedStep step_;                              // the last one
  SearchResult result_;
  int64_t looked_ = 0;
};

}  // namespace mpt::planner
