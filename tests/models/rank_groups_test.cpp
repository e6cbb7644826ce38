// SPDX-License-Identifier: Apache-2.0
#include "models/rank_groups.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/schedule.h"

namespace mpt::models {
namespace {

Layout layout_of(int64_t pipeline, int64_t data, int64_t zero) {
  Layout layout;
  layout.pipeline = pipeline;
  layout.data = data;
  layout.zero = zero;
  if (zero > 0) layout.shard = data;
  return layout;
}

std::vector<int64_t> members_of(const Layout& layout, GroupUse use, int64_t rank) {
  const RankGrid grid(layout);
  const RankCoordinates at = grid.coordinates(rank);
  return members(grid, at, stage_groups(layout, at)[size_t(use)].ranks);
}

// Four edges and the replicas: not these for each of seven stages, and nothing for a table that is not
// shared.
TEST(RankGroups, StagesOfARankShareCommunicators) {
  Layout layout = layout_of(2, 4, 1);
  layout.chunks = 7;
  const std::vector<int> stages = round_robin_placement(2, 7);
  EXPECT_EQ(communicator_counts(layout, stages, false), (std::vector<int64_t>{5, 5}));
  EXPECT_EQ(communicator_counts(layout, stages, true), (std::vector<int64_t>{6, 6}));
  layout.overlap_parameter_gather = true;  // in a thread of its own
  EXPECT_EQ(communicator_counts(layout, stages, false), (std::vector<int64_t>{6, 6}));
  layout.overlap_gradient_reduce = true;  // in the same thread
  EXPECT_EQ(communicator_counts(layout, stages, false), (std::vector<int64_t>{5, 5}));
  layout.overlap_transfer = false;  // in the order of compute, both kinds of transfer
  EXPECT_EQ(communicator_counts(layout, stages, false), (std::vector<int64_t>{3, 3}));
}

TEST(RankGroups, EdgesAreThoseOfThePlacement) {
  const Layout straight = layout_of(4, 1, 0);
  EXPECT_EQ(communicator_counts(straight, round_robin_placement(4, 1), false),
            (std::vector<int64_t>{2, 4, 4, 2}));
  EXPECT_EQ(communicator_counts(straight, round_robin_placement(4, 2), false),
            (std::vector<int64_t>{4, 4, 4, 4}));
  EXPECT_EQ(communicator_counts(straight, v_placement(4, 2), false), (std::vector<int64_t>{4, 8, 8, 4}));
}

// Every rank is in each of its own groups, and all of a group agree who is in it.
TEST(RankGroups, MembersAgree) {
  Layout layout;
  layout.tensor = 2;
  layout.context = 2;
  layout.data = 4;
  layout.pipeline = 2;
  layout.expert = 4;
  layout.expert_tensor = 2;
  layout.zero = 1;
  layout.shard = 4;
  for (const RankOrder order : {RankOrder::pipeline_outermost, RankOrder::data_outermost}) {
    layout.order = order;
    for (size_t use = 0; use < kGroupUses; ++use) {
      for (int64_t rank = 0; rank < layout.ranks(); ++rank) {
        const auto own = members_of(layout, GroupUse(use), rank);
        EXPECT_EQ(std::count(own.begin(), own.end(), rank), 1) << use << " of rank " << rank;
        for (const int64_t other : own) EXPECT_EQ(members_of(layout, GroupUse(use), other), own) << use;
      }
    }
  }
  layout.order = RankOrder::pipeline_outermost;
  EXPECT_EQ(members_of(layout, GroupUse::tensor, 5), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(members_of(layout, GroupUse::context, 5), (std::vector<int64_t>{5, 7}));
  EXPECT_EQ(members_of(layout, GroupUse::gradient_shards, 5), (std::vector<int64_t>{1, 3, 5, 7}));
  EXPECT_EQ(members_of(layout, GroupUse::gradients, 5), (std::vector<int64_t>{5, 13}));
  EXPECT_EQ(members_of(layout, GroupUse::experts, 5), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(members_of(layout, GroupUse::expert_gradient_shards, 5), (std::vector<int64_t>{5, 13}));
}

}  // namespace
}  // namespace mpt::models
