// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/fitted_time.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "planner/api.h"
#include "planner/cost/calibration.h"

namespace mpt::planner {
namespace {

PlanRequest placed(const std::string& model, const std::string& cluster, int64_t tensor, int64_t pipeline) {
  PlanRequest r;
  r.model.name = model;
  r.cluster.name = cluster;
  r.global_batch = 64;
  r.bounds.tensor = {tensor};
  r.bounds.pipeline = {pipeline};
  return r;
}

FittedTime fitted_time_of(const PlanRequest& request) {
  const Estimated e = estimate(request);
  return fitted_time(e.resolved->problem, e.candidate);
}

double share_of(const FittedTime& fitted, const std::string& name) {
  for (const ConstantShare& c : fitted.constants) {
    if (c.name == name) return c.share;
  }
  return 0.0;
}

// By the difference quotient of whole predictions, without the code under test.
double sensitivity(const PlanRequest& request, size_t constant) {
  constexpr double kChange = 1e-4;
  const auto step_s = [&](double change) {
    Calibration moved = shipped_calibration();
    moved.*Calibration::members()[constant].second *= 1.0 + change;
    return estimate(request, moved).plan.prediction.step_time_s;
  };
  return std::abs(step_s(kChange) - step_s(-kChange)) / (2.0 * kChange) / step_s(0.0);
}

TEST(FittedTime, AConstantsShareIsItsSensitivity) {
  for (const PlanRequest& request :
       {placed("llama3-8b", "dgx-h100:2", 2, 2), placed("mixtral-8x7b", "dgx-a100:2", 1, 2)}) {
    const FittedTime fitted = fitted_time_of(request);
    int listed = 0;
    for (size_t c = 0; c < constants().size(); ++c) {
      const double expected = constants()[c].origin == ConstantOrigin::fitted ? sensitivity(request, c) : 0.0;
      EXPECT_NEAR(share_of(fitted, constants()[c].name), expected, 0.02 * expected + 1e-3)
          << constants()[c].name;
      listed += expected > 0.01 ? 1 : 0;
    }
    EXPECT_GE(listed, 4) << "the comparison says something";
  }
}

// Each price counts once, however many constants it rests on.
TEST(FittedTime, AllConstantsTogetherHaveNoMoreThanTheirSumAndThanTheStep) {
  const FittedTime fitted = fitted_time_of(placed("llama3-70b", "dgx-h100:4", 8, 4));
  const double sum = std::accumulate(fitted.constants.begin(), fitted.constants.end(), 0.0,
                                     [](double s, const ConstantShare& c) { return s + c.share; });
  ASSERT_GE(fitted.constants.size(), 2u);
  EXPECT_GE(fitted.share, fitted.constants.front().share);
  EXPECT_LT(fitted.share, sum - 0.05) << "weight gradients rest on two constants";
  EXPECT_LE(fitted.share, 1.0);
  EXPECT_TRUE(
      std::is_sorted(fitted.constants.begin(), fitted.constants.end(),
                     [](const ConstantShare& a, const ConstantShare& b) { return a.share > b.share; }));
}

TEST(FittedTime, APriceByPeakRatesRestsOnKernelStartsAlone) {
  const FittedTime fitted = fitted_time_of(placed("gpt2-124m", "this-machine:2", 1, 2));
  EXPECT_LT(fitted.share, 0.2);
  for (const ConstantShare& c : fitted.constants) EXPECT_EQ(c.name, "kernel_gap_s");
}

TEST(FittedTime, IsToldBesideThePlanAndOnlyThere) {
  Plan plan = estimate(placed("gpt2-124m", "dgx-h100:1", 1, 1)).plan;
  EXPECT_FALSE(plan.fitted);
  EXPECT_EQ(describe_fitted_time(plan), "");
  plan.fitted = FittedTime{0.71, {{"sustained", 0.62}, {"kernel_gap_s", 0.011}}};
  EXPECT_EQ(describe_fitted_time(plan),
            "71.0% of the step time rests on constants that were fitted to published runs (most on sustained "
            "62.0%, kernel_gap_s 1.1%).");
  EXPECT_NE(explain(plan).find("71.0% of the step time rests on constants"), std::string::npos);
  EXPECT_EQ(plan_from_text(plan_to_text(plan), "plan").fitted, plan.fitted);
}

TEST(FittedTime, ARecommendedPlanHasIt) {
  const Plan plan = planner::plan(placed("llama3-8b", "dgx-h100:1", 2, 1));
  ASSERT_TRUE(plan.fitted);
  EXPECT_GT(plan.fitted->share, 0.1);
  EXPECT_FALSE(plan.fitted->constants.empty());
}

}  // namespace
}  // namespace mpt::planner
