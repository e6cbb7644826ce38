// SPDX-License-Identifier: Apache-2.0
#include "core/bound_words.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace mpt {
namespace {

using Options = std::vector<std::string>;

SearchBounds some_bounds() {
  SearchBounds bounds;
  bounds.pipeline = {1, 4};
  bounds.zero = {3};
  bounds.schedules = {"1f1b"};
  return bounds;
}

TEST(BoundWords, AreTheBoundsAsTheyAreTyped) {
  SearchBounds bounds;
  bounds.pipeline = {1, 2};
  bounds.sequence_parallel = {Switch::on};
  bounds.recomputes = {Recompute::none, Recompute::full};
  bounds.schedules = {"zb-h1"};
  bounds.context_methods = {ContextMethod::all_to_all};
  EXPECT_EQ(options_of(bound_words(bounds)),
            "--pp 1,2 --recompute none,full --schedule zb-h1 --sp on --cp-method all_to_all");
  EXPECT_EQ(options_of({}), "");
}

TEST(BoundWords, TellWhichOfThemALayoutBreaks) {
  Layout layout;
  layout.pipeline = 2;
  layout.zero = 3;
  EXPECT_EQ(broken_bounds(some_bounds(), layout), Options{"--pp 1,4"});
  layout.schedule = "gpipe";
  EXPECT_EQ(broken_bounds(some_bounds(), layout), (Options{"--pp 1,4", "--schedule 1f1b"}));
  layout.pipeline = 4;
  layout.schedule = "1f1b";
  EXPECT_EQ(broken_bounds(some_bounds(), layout), Options{});
}

TEST(BoundWords, WhatALayoutCannotShowBreaksNothing) {
  const SearchBounds bounds =
      parse_bounds("sp=on,cp-method=ring,order=data_outermost,etp=2,schedule=gpipe,zero=3", "test");
  EXPECT_EQ(broken_bounds(bounds, Layout{}), Options{});
  Layout split;
  split.tensor = split.context = split.pipeline = split.data = split.expert = 2;
  split.expert_tensor = 1;
  split.context_method = ContextMethod::all_to_all;
  EXPECT_EQ(broken_bounds(bounds, split).size(), 6u);
}

TEST(BoundWords, ExpertsThatAreSplitLikeTheRestHaveTheirTensorDegree) {
  Layout layout;
  layout.tensor = layout.expert = 2;
  SearchBounds bounds;
  bounds.expert_tensor = {2};
  EXPECT_EQ(broken_bounds(bounds, layout), Options{});
  bounds.expert_tensor = {1};
  EXPECT_EQ(broken_bounds(bounds, layout), Options{"--etp 1"});
}

TEST(BoundWords, EveryBoundIsReadAsItIsWritten) {
  const std::string all =
      "tp=1,cp=2,pp=3,dp=4,zero=0,zero=3,ep=5,micro-batch=6,recompute=full,schedule=zb-h1,sp=off,"
      "cp-method=ring,chunks=7,offload=on,order=data_outermost,etp=8";
  const SearchBounds bounds = parse_bounds(all, "test");
  std::string again;
  for (const BoundWords& bound : bound_words(bounds)) {
    for (const std::string& value : bound.values)
      again += (again.empty() ? "" : ",") + bound.name + "=" + value;
  }
  EXPECT_EQ(again, all);
}

TEST(BoundWords, WrongOnesNameTheOption) {
  const auto message = [](const std::string& text) -> std::string {
    try {
      parse_bounds(text, "--why-not");
    } catch (const UserError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(message("tpp=1").find("--why-not"), std::string::npos);
  EXPECT_NE(message("tpp=1").find("did you mean \"tp\""), std::string::npos) << message("tpp=1");
  EXPECT_NE(message("tp=").find("key=value"), std::string::npos);
  EXPECT_NE(message("tp=0").find("from 1 to 10000000"), std::string::npos) << message("tp=0");
  EXPECT_NE(message("zero=4").find("from 0 to 3"), std::string::npos) << message("zero=4");
  EXPECT_NE(message("recompute=ful").find("one of none, selective, full"), std::string::npos);
}

}  // namespace
}  // namespace mpt
