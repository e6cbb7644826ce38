// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/utilisation.h"

#include <gtest/gtest.h>

#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

Plan plan_of_four() {
  Plan plan;
  plan.layout.data = 4;
  plan.layout.precision = Precision::bf16;
  plan.cluster.device.kind = DeviceKind::gpu;
  plan.cluster.device.fp32_flop_per_s = 1e13;
  plan.cluster.device.bf16_flop_per_s = 1e14;
  plan.cluster.device.fp8_flop_per_s = 2e14;
  plan.prediction.step_time_s = 2.0;
  plan.prediction.model_flop_per_step = 4e14;
  plan.prediction.tokens_per_s = 1e6;
  return plan;
}

TEST(Utilisation, IsModelFlopAgainstThePeakOfThePrecision) {
  Plan plan = plan_of_four();
  EXPECT_DOUBLE_EQ(model_flop_utilisation(plan), 4e14 / (2.0 * 4 * 1e14));
  plan.layout.precision = Precision::fp8;
  EXPECT_DOUBLE_EQ(model_flop_utilisation(plan), 4e14 / (2.0 * 4 * 2e14));
  plan.layout.precision = Precision::fp32;
  EXPECT_DOUBLE_EQ(model_flop_utilisation(plan), 4e14 / (2.0 * 4 * 1e13));
}

TEST(Utilisation, OfADeviceWithoutThePrecisionIsNone) {
  Plan plan = plan_of_four();
  plan.layout.precision = Precision::fp8;
  plan.cluster.device.fp8_flop_per_s = 0.0;
  EXPECT_EQ(model_flop_utilisation(plan), 0.0);
}

// The peak of a processor is a guess, or the rate of one product: what is above it says nothing.
TEST(Utilisation, OfAProcessorAboveItsPeakIsNone) {
  Plan plan = plan_of_four();
  plan.cluster.device.kind = DeviceKind::cpu;
  EXPECT_DOUBLE_EQ(model_flop_utilisation(plan), 0.5);
  EXPECT_EQ(model_flop_utilisation(plan, 0.9), 0.0);
}

TEST(TrainingCost, CountsDaysDeviceHoursAndPrice) {
  // 864e9 tokens at a million a second: 864,000 seconds.
  const TrainingCost cost = training_cost(plan_of_four(), 864e9, 2.5);
  EXPECT_DOUBLE_EQ(cost.days, 10.0);
  EXPECT_DOUBLE_EQ(cost.device_hours, 10.0 * 24 * 4);
  EXPECT_DOUBLE_EQ(cost.price, 10.0 * 24 * 4 * 2.5);
}

TEST(TrainingCost, GoodputLengthensAllOfIt) {
  const TrainingCost cost = training_cost(plan_of_four(), 864e9, 2.5, 0.8);
  EXPECT_DOUBLE_EQ(cost.days, 12.5);
  EXPECT_DOUBLE_EQ(cost.device_hours, 12.5 * 24 * 4);
  EXPECT_DOUBLE_EQ(cost.price, 12.5 * 24 * 4 * 2.5);
}

TEST(TrainingCost, TheRangeOfAStepGoesOn) {
  Confidence sure;
  EXPECT_EQ(with_range(10.0, 2.0, sure, format_days), "10.0") << "no run tells";
  sure.least_s = 1.8;
  sure.most_s = 2.6;
  EXPECT_EQ(with_range(10.0, 2.0, sure, format_days), "10.0 (9.0 to 13.0)");
}

// Times of a noisy profile may be shorter than any that the machine reaches.
TEST(Utilisation, AboveThePeakIsNotPossibleAndNotPrinted) {
  Plan told = plan_of_four();
  EXPECT_NE(reports::describe_utilisation(told).find("MFU 50.0%"), std::string::npos);
  told.prediction.step_time_s /= 10.0;
  const std::string text = reports::describe_utilisation(told);
  EXPECT_EQ(text.find("MFU"), std::string::npos) << text;
  EXPECT_NE(text.find("not possible"), std::string::npos) << text;
}

}  // namespace
}  // namespace mpt::planner
