// SPDX-License-Identifier: Apache-2.0
#pragma once

// Leaves of the search tree. A leaf adds to its sharding node a schedule and chunks, a division of the layers
// into stages, and recompute. Combinations that differ only in name are listed once: one pipeline rank has
// one schedule.

#include <array>
#include <string>
#include <vector>

#include "core/schedule_catalog.h"
#include "planner/search/space.h"

namespace mpt::planner {

/// even: stages differ by one layer at most. balanced: the slowest stage is as fast as possible; embedding
/// and head count as work. by_memory: in mixed clusters, layers are in proportion to the memory of each rank.
enum class StageSplit : uint8_t { even, balanced, by_memory };
/// Recompute of a leaf. fitted: full recompute of as few layers of each stage as memory asks for.
enum class RecomputeChoice : uint8_t { none, selective, full, fitted };

Recompute recompute_of(RecomputeChoice choice);
/// The cheapest recompute that the choice can end with: fitting may leave no layer to recompute.
Recompute least_recompute(RecomputeChoice choice);

struct Leaf {
  uint16_t schedule = 0;  // index into schedule_catalog()
  uint16_t chunks = 1;
  StageSplit split = StageSplit::even;
  RecomputeChoice recompute = RecomputeChoice::none;
  bool operator==(const Leaf&) const = default;
};

/// Frameworks by index of LeafList::traits. Virtual stages, split backwards and three kinds of recompute make
/// twelve at most.
using LeafRunners = std::array<Runners, 12>;

/// The leaves of all nodes with one pipeline and number of micro-batches, and which of them cost the same.
struct LeafList {
  explicit LeafList(std::vector<Leaf> leaves);
  std::vector<Leaf> leaves;
  std::vector<Runners> runners;  // frameworks that take each, whatever its traits
  std::vector<uint16_t> price_of_leaf;
  std::vector<uint16_t> division_of_leaf;                      // into stages, and how they are placed
  std::vector<uint8_t> traits_of_leaf;                         // index into the next one
  std::vector<std::pair<frameworks::Traits, int64_t>> traits;  // that leaves add, and the number of leaves
  NotDividing not_dividing;                                    // rules that fail
  size_t prices = 0, divisions = 0;
};

/// Whether bounds and framework allow a schedule of this name.
bool has_schedule(const SearchProblem& problem, const std::string& name);
/// Leaves that a node of degrees has below some sharding. They depend only on its pipeline, its number of
/// micro-batches and on whether it overlaps the exchange with experts. Notes rules that fail.
std::vector<Leaf> leaves_of_degrees(const SearchProblem& problem, const Layout& node,
                                    NotDividing* not_dividing = nullptr);
/// Those of a sharding node: what the framework combines with its sharding.
std::vector<Leaf> leaves_of(const SearchProblem& problem, const Layout& node);
/// Why the framework does not combine a leaf with its sharding node.
std::optional<Rejection> refused_below(const SearchProblem& problem, const Layout& node, const Leaf& leaf);
/// What the leaf adds to the traits of its node.
frameworks::Traits traits_of(const Layout& node, const Leaf& leaf);

/// The list of a node, whose sharding is not read.
LeafList leaf_list_of(const SearchProblem& problem, const Layout& node);

/// Whether stage numbers go round the ranks. Two chunks can also have the placement of a V.
bool in_rounds(const Leaf& leaf);
/// Pipeline rank of each stage.
std::vector<int> placement_of(const Layout& node, const Leaf& leaf);

/// The layout with an even division into stages and without recomputed_layers.
Layout with_leaf(const SearchProblem& problem, const Layout& node, const Leaf& leaf);

}  // namespace mpt::planner
