// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/drawn_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "planner/api.h"
#include "tests/support/random_problem.h"

namespace mpt::planner {
namespace {

// Layouts by the seconds that they compute and communicate, and the doublings of their micro-batch.
struct Layouts {
  std::vector<CorrectedPoint> points;
  std::vector<double> log_times;

  void add(double computes_s, double communicates_s, double doublings = 0.0) {
    const double step_s = computes_s + communicates_s;
    points.push_back(
        {{computes_s / step_s, communicates_s / step_s, doublings}, std::to_string(points.size())});
    log_times.push_back(std::log(step_s));
  }
};
Layouts two(double computes_s, double communicates_s, double doublings = 0.0) {
  Layouts layouts;
  layouts.add(10.0, 0.0);
  layouts.add(computes_s, communicates_s, doublings);
  return layouts;
}

struct Spreads {
  double compute = 0.0, communication = 0.0, doubling = 0.0, layout = 0.0;
};
DrawnChoice drawn(const Layouts& layouts, const Spreads& s, const std::vector<double>& scales = {}) {
  const CorrectionPrior prior{{s.compute, s.communication, s.doubling}, s.layout, 0.0};
  return draw_choice(
      Eigen::Map<const LogTimes>(layouts.log_times.data(), Eigen::Index(layouts.points.size())),
      Posterior(layouts.points, prior), scales);
}

// Equally fast, one by computing and one by communicating.
const Layouts kEqual = two(6, 4);

TEST(DrawnChoice, IsTheSameEachTime) { EXPECT_EQ(drawn(kEqual, {0.05, 0.2}), drawn(kEqual, {0.05, 0.2})); }

TEST(DrawnChoice, WithoutErrorsTheFirstWins) {
  const DrawnChoice choice = drawn(two(6, 5), {});
  EXPECT_EQ(choice.other_wins, 0.0);
  EXPECT_EQ(choice.regret_95, 0.0);
  EXPECT_TRUE(choice.measure.empty());
  EXPECT_EQ(choice.draws, int64_t(kDraws));
  EXPECT_EQ(choice.layouts, 2);
}

TEST(DrawnChoice, EqualLayoutsOfDifferentWorkWinHalfOfTheDraws) {
  const DrawnChoice choice = drawn(kEqual, {0.0, 0.2});
  EXPECT_NEAR(choice.other_wins, 0.5, 0.05);
  // 40 % of the time is off by 20 %.
  EXPECT_NEAR(choice.regret_95, std::expm1(0.4 * 0.2 * 1.645), 0.03);
  EXPECT_GT(choice.regret_mean, 0.02);
  EXPECT_EQ(choice.measure, (std::vector<int64_t>{1, 2}));
}

TEST(DrawnChoice, AnErrorThatAllShareChangesNothing) {
  Layouts layouts;
  layouts.add(10, 1);
  layouts.add(10.5, 1.05);
  EXPECT_EQ(drawn(layouts, {0.3, 0.3}).other_wins, 0.0);
}

TEST(DrawnChoice, LayoutsAreOffByTheirOwnPartsAndByTheirFeatures) {
  EXPECT_EQ(drawn(two(10.1, 0), {0.0, 0.0, 0.1}).other_wins, 0.0);
  EXPECT_GT(drawn(two(10.1, 0, 1.0), {0.0, 0.0, 0.1}).other_wins, 0.3);
  EXPECT_GT(drawn(two(10.1, 0), {0.0, 0.0, 0.0, 0.1}).other_wins, 0.3);
}

TEST(DrawnChoice, TheFartherALayoutIsTheMoreItsErrorDiffers) {
  double before = 0.0;
  for (const double doublings : {1.0, 2.0, 4.0}) {
    const double now = drawn(two(10, 0, doublings), {0.0, 0.0, 0.05}).regret_95;
    EXPECT_GT(now, 1.5 * before) << doublings;
    before = now;
  }
}

TEST(DrawnChoice, LargerErrorsCostMoreAndSlowerLayoutsWinLess) {
  double before = 0.0;
  for (const double spread : {0.02, 0.1, 0.4}) {
    const double now = drawn(kEqual, {0.0, spread}).regret_mean;
    EXPECT_GT(now, before) << spread;
    before = now;
  }
  double wins = 1.0;
  for (const double slower : {1.0, 1.05, 1.2}) {
    const double now = drawn(two(6 * slower, 4 * slower), {0.0, 0.2}).other_wins;
    EXPECT_LT(now, wins) << slower;
    wins = now;
  }
}

// Half of all clusters are met exactly, and half are off by twice the spread: fewer surprises, and larger
// ones.
TEST(DrawnChoice, ClustersAreOffByUnequalAmounts) {
  const Spreads spreads{0.0, 0.1};
  const DrawnChoice alike = drawn(two(6, 4.05), spreads), unlike = drawn(two(6, 4.05), spreads, {0.0, 2.0});
  EXPECT_EQ(drawn(two(6, 4.05), spreads, {0.0}).other_wins, 0.0);
  EXPECT_EQ(drawn(two(6, 4.05), spreads, {1.0, 1.0}), alike);
  EXPECT_LT(unlike.other_wins, alike.other_wins);
  EXPECT_GT(unlike.regret_95, 1.3 * alike.regret_95);
}

TEST(DrawnChoice, NamesTheLayoutWhoseWinsCostMost) {
  Layouts layouts = two(9.9, 0.2);
  layouts.add(2, 8);
  EXPECT_EQ(drawn(layouts, {0.0, 0.2}).measure, (std::vector<int64_t>{1, 3}));
}

TEST(DrawnChoice, IsSaidInASentence) {
  const std::vector<Layout> ranking(2);
  const DrawnChoice drawn{1000, 5, 0.12, 0.004, 0.041, {1, 2}};
  EXPECT_EQ(
      describe_drawn(drawn, ranking),
      "If prices are off as in published runs, another layout wins in 12.0% of 1,000 draws; this one then "
      "costs 0.4% on average over all draws, 4.1% at 95%: measure it and " +
          layout_name(ranking[1]) + " to decide.");
}

TEST(DrawnChoice, TheFirstScreenNamesTwoLayoutsToTime) {
  std::vector<Layout> ranking(3);
  ranking[1].micro_batch = 4;
  ranking[2].micro_batch = 2;
  DrawnChoice drawn{1000, 5, 0.74, 0.074, 0.218, {1, 3}};
  const std::string text = describe_order(drawn, ranking);
  EXPECT_NE(text.find("lose 7%"), std::string::npos) << text;
  EXPECT_NE(text.find(layout_name(ranking[0])), std::string::npos) << text;
  EXPECT_NE(text.find(layout_name(ranking[2])), std::string::npos) << text;
  drawn.regret_mean = 0.9 * kUncertainOrder;
  EXPECT_EQ(describe_order(drawn, ranking), "") << "certain enough";
  drawn.regret_mean = 0.074;
  ranking.pop_back();
  EXPECT_EQ(describe_order(drawn, ranking), "") << "a ranking without the other one";
}

PlanRequest small_request() {
  PlanRequest request;
  request.model.name = "llama3-8b";
  request.cluster.name = "dgx-h100:1";
  request.global_batch = 128;
  request.top = 1;
  return request;
}

TEST(DrawnChoice, OfAPlanIsAmongLayoutsOfItsRanking) {
  const Plan made = plan(small_request());
  ASSERT_TRUE(made.search.drawn);
  const DrawnChoice& drawn = *made.search.drawn;
  EXPECT_GT(drawn.layouts, 1);
  EXPECT_LE(drawn.layouts, 32);
  EXPECT_GT(drawn.other_wins, 0.0);
  EXPECT_EQ(drawn.measure, (std::vector<int64_t>{1, 2}))
      << "the rival stands behind the one that was asked for";
  ASSERT_GE(made.ranking.size(), 2u);
  EXPECT_LE(made.ranking[1].step_time_s, (1.0 + kNearFront) * made.prediction.step_time_s);
  EXPECT_EQ(plan(small_request()).search.drawn, made.search.drawn);
}

TEST(DrawnChoice, IsNotOfPricesWhoseErrorsNoRunTells) {
  for (uint32_t seed = 1; seed < 6; ++seed) {
    const test::RandomProblem r(seed);
    EXPECT_FALSE(draw_choice(search(r.problem, 32), r.problem)) << "a roofline, seed " << seed;
  }
}

}  // namespace
}  // namespace mpt::planner
