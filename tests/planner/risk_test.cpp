// SPDX-License-Identifier: Apache-2.0

// A faster layout that may not fit, weighed against the safe one.

#include "planner/answer/recommend.h"

#include <gtest/gtest.h>

#include "planner/explain/confidence.h"
#include "planner/explain/explain.h"
#include "planner/explain/screen.h"
#include "tests/support/random_problem.h"

namespace mpt::planner {
namespace {

RankedLayout row(double step_s, std::optional<double> fits) {
  RankedLayout r;
  r.step_time_s = step_s;
  r.confidence.fits = fits;
  return r;
}

// 1,000 steps of the other layout after a failed trial of 20, by a loop over all trainings.
TEST(Risk, TheExpectedStepIsTheAverageOverTrainings) {
  constexpr double kFirst = 21.9, kOther = 50.7;
  double seconds = 0.0;
  for (int training = 0; training < 100; ++training) {
    const bool fits = training < 79;
    if (!fits) seconds += 20.0 * kFirst;
    for (int step = 0; step < 1000; ++step) seconds += fits ? kFirst : kOther;
  }
  EXPECT_NEAR(expected_step_s(0.79, kFirst, kOther), seconds / 100e3, 1e-9);
}

TEST(Risk, TheLayoutToTryHasTheLeastExpectedTime) {
  const RankedLayout safe = row(50.0, 0.95);
  const std::vector<RankedLayout> all{row(20.0, 0.10), row(22.0, 0.79), row(24.0, 0.80), row(49.0, 0.89)};
  const auto risk = weigh(safe, all);
  ASSERT_TRUE(risk);
  EXPECT_EQ(risk->try_first, 1);
  EXPECT_DOUBLE_EQ(risk->expected_s, expected_step_s(0.79, 22.0, 50.0));
  EXPECT_DOUBLE_EQ(risk->gain, 1.0 - risk->expected_s / 50.0);
}

TEST(Risk, NothingIsTriedForLittle) {
  const RankedLayout safe = row(50.0, 0.95);
  EXPECT_FALSE(weigh(safe, {row(46.0, 0.89)})) << "8 % faster at most";
  EXPECT_FALSE(weigh(safe, {row(10.0, 0.02)})) << "it will hardly fit";
  EXPECT_FALSE(weigh(safe, {row(10.0, std::nullopt)})) << "nothing tells";
  EXPECT_FALSE(weigh(safe, {row(10.0, 0.9)})) << "that one fits";
  EXPECT_TRUE(weigh(safe, {row(40.0, 0.89)}));
}

TEST(Risk, NineInTenFit) {
  EXPECT_FALSE(may_not_fit({std::nullopt, std::nullopt, 0.9}));
  EXPECT_FALSE(may_not_fit({}));
  EXPECT_TRUE(may_not_fit({std::nullopt, std::nullopt, 0.8999}));
}

TEST(Risk, TheScreenShowsBothLayouts) {
  const test::RandomProblem r(7);
  Plan plan = make_plan(search(r.problem, 5), r.problem);
  plan.ranking.resize(1);
  RankedLayout first = plan.ranking.front();
  first.layout.recompute = first.layout.recompute == Recompute::full ? Recompute::none : Recompute::full;
  first.layout.recomputed_layers.clear();
  first.step_time_s *= 0.5;
  first.confidence.fits = 0.79;
  plan.ranking.push_back(first);
  EXPECT_NE(answer_screen(plan).find("RECOMMENDED"), std::string::npos);
  plan.risk = WeighedRisk{2, 1, 0.6 * plan.prediction.step_time_s, 0.4};
  const std::string text = answer_screen(plan);
  const size_t tried = text.find("TRY FIRST"), safe = text.find("FALL BACK");
  ASSERT_NE(tried, std::string::npos) << text;
  ASSERT_NE(safe, std::string::npos) << text;
  EXPECT_LT(tried, safe);
  EXPECT_LT(text.find("fits: 79%"), safe) << text;
  EXPECT_NE(text.find("40.0% less"), std::string::npos) << text;
  EXPECT_EQ(text.find("RECOMMENDED"), std::string::npos) << text;
  EXPECT_TRUE(alternatives(plan).empty()) << "each layout stands there once";
  plan.ranking.back() = plan.ranking.front();
  EXPECT_EQ(plan_from_text(plan_to_text(plan), "test").risk, plan.risk);
  plan.risk->try_first = 900;
  EXPECT_NE(answer_screen(plan).find("RECOMMENDED"), std::string::npos) << "a place that the ranking lacks";
}

}  // namespace
}  // namespace mpt::planner
