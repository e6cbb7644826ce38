// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/drawn_choice.h"

#include <gtest/gtest.h>

#include "planner/api.h"
#include "tests/support/random_problem.h"

namespace mpt::planner {
namespace {

constexpr auto kProducts = size_t(WorkClass::products), kTensor = size_t(WorkClass::tensor_collectives);

DrawnLayout taking(double products_s, double tensor_s, int64_t micro_batch = 1) {
  DrawnLayout l;
  l.layout.micro_batch = micro_batch;
  l.work[kProducts] = products_s;
  l.work[kTensor] = tensor_s;
  return l;
}

PriceErrors errors_of(double products, double tensor) {
  PriceErrors errors;
  errors.work[kProducts] = products;
  errors.work[kTensor] = tensor;
  return errors;
}

// Equally fast, one by computing and one by communicating.
const std::vector<DrawnLayout> kEqual{taking(10, 0), taking(6, 4)};

TEST(DrawnChoice, IsTheSameEachTime) {
  const PriceErrors errors = errors_of(0.05, 0.2);
  EXPECT_EQ(draw_choice(kEqual, errors), draw_choice(kEqual, errors));
}

TEST(DrawnChoice, WithoutErrorsTheFirstWins) {
  const DrawnChoice drawn = draw_choice(kEqual, {});
  EXPECT_EQ(drawn.other_wins, 0.0);
  EXPECT_EQ(drawn.regret_95, 0.0);
  EXPECT_TRUE(drawn.measure.empty());
  EXPECT_EQ(drawn.draws, kDraws);
  EXPECT_EQ(drawn.layouts, 2);
}

TEST(DrawnChoice, EqualLayoutsOfDifferentWorkWinHalfOfTheDraws) {
  const DrawnChoice drawn = draw_choice(kEqual, errors_of(0.0, 0.2));
  EXPECT_NEAR(drawn.other_wins, 0.5, 0.05);
  // 40 % of the time is off by 20 %: a share of the layout's step time that is normal but for its skew.
  EXPECT_NEAR(drawn.regret_95, 0.4 * 0.2 * 1.645, 0.03);
  EXPECT_GT(drawn.regret_mean, 0.02);
  EXPECT_EQ(drawn.measure, (std::vector<int64_t>{1, 2}));
}

TEST(DrawnChoice, AnErrorThatAllShareChangesNothing) {
  const std::vector<DrawnLayout> layouts{taking(10, 1), taking(10.5, 1.05)};
  EXPECT_EQ(draw_choice(layouts, errors_of(0.3, 0.0)).other_wins, 0.0);
}

TEST(DrawnChoice, LayoutsThatDifferInNoPartShareItsError) {
  PriceErrors errors;
  errors.parts[size_t(LayoutPart::pipeline)] = 0.1;
  const std::vector<DrawnLayout> alike{taking(10, 0), taking(10.1, 0)},
      apart{taking(10, 0), taking(10.1, 0, 2)};
  EXPECT_EQ(draw_choice(alike, errors).other_wins, 0.0);
  EXPECT_GT(draw_choice(apart, errors).other_wins, 0.3);
}

TEST(DrawnChoice, TheFartherALayoutIsTheMoreItsErrorDiffers) {
  PriceErrors errors;
  errors.parts[size_t(LayoutPart::pipeline)] = 0.05;
  double before = 0.0;
  for (const int64_t micro_batch : {2, 4, 16}) {
    const std::vector<DrawnLayout> layouts{taking(10, 0), taking(10, 0, micro_batch)};
    const double now = draw_choice(layouts, errors).regret_95;
    EXPECT_GT(now, 1.5 * before) << micro_batch;
    before = now;
  }
}

TEST(DrawnChoice, LargerErrorsCostMoreAndSlowerLayoutsWinLess) {
  double before = 0.0;
  for (const double spread : {0.02, 0.1, 0.4}) {
    const double now = draw_choice(kEqual, errors_of(0.0, spread)).regret_mean;
    EXPECT_GT(now, before) << spread;
    before = now;
  }
  double wins = 1.0;
  for (const double slower : {1.0, 1.05, 1.2}) {
    const std::vector<DrawnLayout> layouts{taking(10, 0), taking(6 * slower, 4 * slower)};
    const double now = draw_choice(layouts, errors_of(0.0, 0.2)).other_wins;
    EXPECT_LT(now, wins) << slower;
    wins = now;
  }
}

TEST(DrawnChoice, NamesTheLayoutWhoseWinsCostMost) {
  const std::vector<DrawnLayout> layouts{taking(10, 0), taking(9.9, 0.2), taking(2, 8)};
  EXPECT_EQ(draw_choice(layouts, errors_of(0.0, 0.2)).measure, (std::vector<int64_t>{1, 3}));
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

TEST(PriceErrors, AreOfEveryClassAndPart) {
  const PriceErrors errors = published_price_errors();
  double sum = 0.0;
  for (const double spread : errors.work) sum += spread;
  for (const double spread : errors.parts) sum += spread;
  EXPECT_GT(sum, 0.02);
  EXPECT_LT(sum, 5.0);
}

}  // namespace
}  // namespace mpt::planner
