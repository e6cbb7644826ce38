// SPDX-License-Identifier: Apache-2.0
#include "core/rank_grid.h"

#include <gtest/gtest.h>

#include <set>

namespace mpt {
namespace {

TEST(RankGrid, CoordinatesRoundTripAndGroupsPartitionTheRanks) {
  for (const int64_t t : {1, 2, 3}) {
    for (const int64_t d : {1, 2, 5}) {
      for (const int64_t p : {1, 4}) {
        Layout layout;
        layout.tensor = t;
        layout.data = d;
        layout.pipeline = p;
        const RankGrid grid(layout);
        for (const Axis axis : {Axis::tensor, Axis::data, Axis::pipeline}) {
          std::multiset<int64_t> seen;
          for (int64_t r = 0; r < grid.ranks(); ++r) {
            EXPECT_EQ(grid.rank(grid.coordinates(r)), r);
            const auto group = grid.group(r, axis);
            EXPECT_EQ(int64_t(group.size()), grid.degree(axis));
            EXPECT_NE(std::find(group.begin(), group.end(), r), group.end());
            seen.insert(group.begin(), group.end());
          }
          for (int64_t r = 0; r < grid.ranks(); ++r) EXPECT_EQ(int64_t(seen.count(r)), grid.degree(axis));
        }
      }
    }
  }
}

TEST(RankGrid, TensorNeighboursAreAdjacentAndPipelineIsOutermost) {
  Layout layout;
  layout.tensor = 2;
  layout.data = 3;
  layout.pipeline = 4;
  const RankGrid grid(layout);
  EXPECT_EQ(grid.group(0, Axis::tensor), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(grid.group(1, Axis::data), (std::vector<int64_t>{1, 3, 5}));
  EXPECT_EQ(grid.group(0, Axis::pipeline), (std::vector<int64_t>{0, 6, 12, 18}));
}

}  // namespace
}  // namespace mpt
