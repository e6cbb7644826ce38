// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/rank_worker.h"

#include <gtest/gtest.h>

#include "tests/support/make_plan.h"

namespace mpt::runtime {
namespace {

TEST(ExpertLoad, IsTheMeanOfWhatAStageHoldsAtOnce) {
  const std::vector<LayerLoads> layers{{1.0, 1.4, 1.2}, {1.2, 1.0, 1.0}};  // by pass: 1.1, 1.2, 1.1
  EXPECT_DOUBLE_EQ(expert_load({{layers, 1}}, false), 1.2);
  EXPECT_DOUBLE_EQ(expert_load({{layers, 2}}, false), 1.15);
  EXPECT_DOUBLE_EQ(expert_load({{layers, 9}}, false), 3.4 / 3) << "no more than there are";
  EXPECT_DOUBLE_EQ(expert_load({{layers, 1}, {{{1.8}}, 1}, {{}, 1}}, false), (2 * 1.2 + 1.8) / 3);
  EXPECT_DOUBLE_EQ(expert_load({{layers, 2}}, true), 1.4) << "one layer at a time is there";
  EXPECT_EQ(expert_load({{{}, 1}}, false), 0.0);
}

TEST(ExpertLoad, StagesHoldWhatTheirScheduleLeavesOpen) {
  const auto in_flight = [](const char* schedule) {
    return in_flight_of_stages(
        program_of(test::make_plan({test::little_gpt(), {8, 16}, 1, 4, 1, 1, 1, schedule})));
  };
  EXPECT_EQ(in_flight("1f1b"), (std::vector<size_t>{4, 3, 2, 1}));
  EXPECT_EQ(in_flight("gpipe"), (std::vector<size_t>{8, 8, 8, 8}));
  const std::vector<size_t> split = in_flight("zb-h1");
  EXPECT_EQ(split.front(), 4u);
  EXPECT_GE(split.back(), 2u) << "weight gradients wait";
}

}  // namespace
}  // namespace mpt::runtime
