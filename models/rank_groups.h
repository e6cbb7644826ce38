// SPDX-License-Identifier: Apache-2.0
#pragma once

// The groups in which a rank of mpt-run communicates, and the thread that calls each. Groups of the same
// ranks in the same thread share one communicator, since the thread's order of calls is the same on all of
// them. mpt-run makes these communicators, and mpt-plan prices their memory.

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "core/rank_grid.h"

namespace mpt::models {

/// Gradients come first, since a communicator has the name of its first use.
enum class GroupUse : uint8_t {
  gradient_shards,
  gradients,
  sharded_state,
  expert_gradient_shards,  // these three of routed experts
  expert_gradients,
  expert_sharded_state,
  tensor,
  tensor_beside,
  tensor_end,
  context,
  experts,
};
inline constexpr size_t kGroupUses = 11;

/// A thread of a rank. The last two are its lanes of transfers, if these overlap with compute.
enum class CallingThread : uint8_t {
  compute,
  reduction,
  side,
  ring,
  products,
  activations,
  activation_gradients
};

/// Ranks at equal distances: of one stage, in which tensor ranks are neighbours, then context, then data; or
/// of one pipeline.
struct RankSet {
  int64_t first = 0, step = 1, count = 1;
  bool in_pipeline = false;
  auto operator<=>(const RankSet&) const = default;
};

struct RankGroup {
  CallingThread thread = CallingThread::compute;
  RankSet ranks;
  auto operator<=>(const RankGroup&) const = default;
};

/// The groups of the rank at `at`, by GroupUse.
std::array<RankGroup, kGroupUses> stage_groups(const Layout& layout, const RankCoordinates& at);

/// The group that carries activations, or their gradients, from one pipeline rank to another.
RankGroup edge(const Layout& layout, bool activation, int64_t from, int64_t to);
/// Each edge of a pipeline once, in the order of its stages, then the group of its ends, if it has one.
/// `shares_table`: the ends sum gradients of one token table.
std::vector<RankGroup> pipeline_groups(const Layout& layout, std::span<const int> rank_of_stage,
                                       bool shares_table);
RankGroup pipeline_ends(std::span<const int> rank_of_stage);

/// Rank numbers of the group of the rank at `at`.
std::vector<int64_t> members(const RankGrid& grid, const RankCoordinates& at, const RankSet& ranks);

/// The number of communicators of several ranks that each pipeline rank makes.
std::vector<int64_t> communicator_counts(const Layout& layout, std::span<const int> rank_of_stage,
                                         bool shares_table);

}  // namespace mpt::models
