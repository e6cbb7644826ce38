// SPDX-License-Identifier: Apache-2.0
#include "planner/validate/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace mpt::planner {
namespace {

TEST(Statistics, ErrorsAreSummarisedByTheirSize) {
  const ErrorSummary s = summarise_errors({-0.1, 0.3, 0.2, -0.4});
  EXPECT_EQ(s.count, 4);
  EXPECT_NEAR(s.mean, 0.25, 1e-12);
  EXPECT_NEAR(s.median, 0.25, 1e-12);
  EXPECT_NEAR(s.worst, 0.4, 1e-12);
  EXPECT_EQ(summarise_errors({}).count, 0);
}

TEST(Statistics, KendallTauByHand) {
  EXPECT_EQ(kendall_tau({{1, 10}, {2, 20}, {3, 30}}), 1.0);
  EXPECT_EQ(kendall_tau({{1, 30}, {2, 20}, {3, 10}}), -1.0);
  EXPECT_NEAR(kendall_tau({{1, 10}, {2, 30}, {3, 20}}), 1.0 / 3.0, 1e-12);
  // One tie in the prediction: 2 agreeing pairs over sqrt(3 x 2).
  EXPECT_NEAR(kendall_tau({{1, 10}, {2, 10}, {3, 20}}), 2.0 / std::sqrt(6.0), 1e-12);
  EXPECT_EQ(kendall_tau({{1, 1}}), 0.0);
  // The first two are too close to say anything of their order.
  EXPECT_NEAR(kendall_tau({{1, 20}, {1.01, 10}, {3, 30}}), 1.0 / 3.0, 1e-12);
  EXPECT_EQ(kendall_tau({{1, 20}, {1.01, 10}, {3, 30}}, 0.02), 1.0);
}

// Two predictions a standard deviation of their difference apart keep their order with probability 0.84.
TEST(Statistics, ReachableTauIsWhatScatterLeavesOfAnOrder) {
  const double scatter = 0.02, apart = std::exp(std::sqrt(2.0) * scatter);
  EXPECT_NEAR(reachable_tau({1.0, apart}, scatter), 2 * 0.841345 - 1, 1e-5);
  EXPECT_NEAR(reachable_tau({1.0, 2.0, 4.0}, scatter), 1.0, 1e-9);
  EXPECT_NEAR(reachable_tau({1.0, 1.0, 4.0}, scatter), 2.0 / std::sqrt(6.0), 1e-9) << "as tau-b counts ties";
  EXPECT_EQ(reachable_tau({1.0, 1.0}, scatter), 0.0);
}

TEST(Statistics, RepetitionIsTheMedianDifferenceOfWhatWasMeasuredAgain) {
  const Repetition r = repetition_of({{0.9, 1.1}, {5.0}, {3.0, 3.0}, {0.99, 1.01}, {1.0, 1.0, 3.0}});
  EXPECT_EQ(r.repeated, 3) << "one was measured once, one published twice";
  EXPECT_NEAR(r.difference, 0.2, 1e-12);
  EXPECT_EQ(repetition_of({{1.0}, {2.0, 2.0}}).repeated, 0);
  // Half of all pairs of normal values lie within 0.954 standard deviations of each other.
  EXPECT_NEAR(std::erf(0.954 / std::sqrt(2.0) / std::sqrt(2.0)), 0.5, 1e-3);
  EXPECT_NEAR(r.scatter() * 0.954, r.difference, 1e-12);
}

}  // namespace
}  // namespace mpt::planner
