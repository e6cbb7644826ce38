// SPDX-License-Identifier: Apache-2.0
#include "planner/diagnose/drift.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace mpt::planner {
namespace {

// `seconds(step)` with noise of a few per cent, and each 50th step three times as long, as with a checkpoint.
std::vector<StepTime> steps(int64_t count, const std::function<double(int64_t)>& seconds,
                            double noise = 0.02) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal(1.0, noise);
  std::vector<StepTime> all;
  for (int64_t n = 1; n <= count; ++n)
    all.push_back({n, seconds(n) * normal(random) * (n % 50 == 0 ? 3.0 : 1.0)});
  return all;
}

TEST(Drift, ARunThatSlowsDownFromTheStart) {
  const auto drift = find_drift(steps(185, [](int64_t n) { return 10.0 + 120.0 * double(n) / 185.0; }));
  ASSERT_TRUE(drift);
  EXPECT_NEAR(drift->slope_s, 120.0 / 185.0, 0.03);
  EXPECT_NEAR(drift->before_s, 10.0, 3.0);
  EXPECT_NEAR(drift->last_s, 130.0, 5.0);
  EXPECT_LE(drift->from_step, 10);
}

TEST(Drift, TheStepFromWhichItGrows) {
  const auto drift =
      find_drift(steps(400, [](int64_t n) { return 5.0 + 0.05 * double(std::max<int64_t>(0, n - 250)); }));
  ASSERT_TRUE(drift);
  EXPECT_NEAR(double(drift->from_step), 250.0, 15.0);
  EXPECT_NEAR(drift->slope_s, 0.05, 0.005);
  EXPECT_NEAR(drift->before_s, 5.0, 0.2);
}

TEST(Drift, ChangesThatComeAtOnceHaveNoSlope) {
  const auto drift = find_drift(steps(100, [](int64_t n) { return n < 61 ? 10.0 : 19.0; }));
  ASSERT_TRUE(drift);
  EXPECT_EQ(drift->slope_s, 0.0);
  EXPECT_NEAR(double(drift->from_step), 61.0, 2.0);
  EXPECT_NEAR(drift->before_s, 10.0, 0.3);
  EXPECT_NEAR(drift->last_s, 19.0, 0.6);
}

TEST(Drift, NoiseSlowStepsFewStepsAndSpeedUpsAreNone) {
  for (const double noise : {0.0, 0.02, 0.3}) {
    EXPECT_FALSE(find_drift(steps(
        200, [](int64_t) { return 10.0; }, noise)))
        << noise;
    EXPECT_FALSE(find_drift(steps(
        20, [](int64_t) { return 10.0; }, noise)))
        << noise;
  }
  EXPECT_FALSE(find_drift(steps(100, [](int64_t n) { return n < 50 ? 19.0 : 10.0; })));
  EXPECT_FALSE(find_drift(steps(7, [](int64_t n) { return double(n); })));
  EXPECT_FALSE(find_drift(steps(100, [](int64_t n) { return 10.0 + 0.005 * double(n); }))) << "5 % in all";
  EXPECT_FALSE(find_drift({}));
}

TEST(Drift, SaysFromWhichStepAndHowFast) {
  EXPECT_EQ(describe_drift({12, 10.0, 130.0, 0.6}),
            "Step time grows from 10 s to 130 s, by 600 ms in each step from step 12 on.");
  EXPECT_EQ(describe_drift({61, 10.0, 19.0, 0.0}), "Step time grows from 10 s to 19 s at step 61.");
}

}  // namespace
}  // namespace mpt::planner
