// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/restrictions.h"

#include <gtest/gtest.h>

namespace mpt::planner {
namespace {

using Broken = std::vector<std::string>;

TEST(Restrictions, AreTheBoundsAsTheyAreTyped) {
  SpaceBounds bounds;
  bounds.pipeline = {1, 2};
  bounds.sequence_parallel = {true};
  bounds.recomputes = {Recompute::none, Recompute::full};
  bounds.schedules = {"zb-h1"};
  const std::map<std::string, std::string> expected{
      {"pp", "1,2"}, {"sp", "on"}, {"recompute", "none,full"}, {"schedule", "zb-h1"}};
  EXPECT_EQ(restrictions_of(bounds), expected);
  EXPECT_TRUE(restrictions_of({}).empty());
}

TEST(Restrictions, TellWhichOfThemALayoutBreaks) {
  const std::map<std::string, std::string> restrictions{{"pp", "1,4"}, {"zero", "3"}, {"schedule", "1f1b"}};
  Layout layout;
  layout.pipeline = 2;
  layout.zero = 3;
  EXPECT_EQ(broken_restrictions(restrictions, layout), Broken{"--pp 1,4"});
  layout.schedule = "gpipe";
  EXPECT_EQ(broken_restrictions(restrictions, layout), (Broken{"--pp 1,4", "--schedule 1f1b"}));
  layout.pipeline = 4;
  layout.schedule = "1f1b";
  EXPECT_EQ(broken_restrictions(restrictions, layout), Broken{});
}

TEST(Restrictions, WhatALayoutCannotShowBreaksNothing) {
  const std::map<std::string, std::string> restrictions{
      {"sp", "on"}, {"cp-method", "ring"}, {"order", "data_outermost"}, {"etp", "2"}, {"schedule", "gpipe"}};
  EXPECT_EQ(broken_restrictions(restrictions, Layout{}), Broken{});
  Layout split;
  split.tensor = split.context = split.pipeline = split.data = split.expert = 2;
  split.expert_tensor = 1;
  split.context_method = ContextMethod::all_to_all;
  EXPECT_EQ(broken_restrictions(restrictions, split).size(), 5u);
}

TEST(Restrictions, ExpertsThatAreSplitLikeTheRestHaveTheirTensorDegree) {
  Layout layout;
  layout.tensor = layout.expert = 2;
  EXPECT_EQ(broken_restrictions({{"etp", "2"}}, layout), Broken{});
  EXPECT_EQ(broken_restrictions({{"etp", "1"}}, layout), Broken{"--etp 1"});
}

}  // namespace
}  // namespace mpt::planner
