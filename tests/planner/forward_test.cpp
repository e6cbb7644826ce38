// SPDX-License-Identifier: Apache-2.0

// Forward questions against every count of nodes planned by itself, and goodput against failures that are
// drawn.

#include "planner/answer/forward.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "planner/explain/utilisation.h"

namespace mpt::planner {
namespace {

ForwardQuestion question(double days, double budget) {
  ForwardQuestion q;
  q.request.model.name = "llama3-8b";
  q.request.global_batch = 64;
  q.request.threads = 1;
  q.offers = {{"new", "dgx-h100", 4, 3.0}, {"old", "dgx-a100", 8, 1.2}};
  q.tokens = 2e10;
  q.days = days;
  q.budget = budget;
  return q;
}

TEST(Forward, OffersHaveTheNamesOfClusters) {
  struct Row {
    const char *typed, *name, *cluster;
    int64_t nodes;
    const char* all;
  };
  for (const auto& [typed, name, cluster, nodes, all] :
       {Row{"dgx-h100:16", "dgx-h100", "dgx-h100", 16, "dgx-h100:16"},
        {"8xh100", "dgx-h100", "dgx-h100", 1, "dgx-h100:1"},
        {"h100:16", "dgx-h100", "dgx-h100", 2, "dgx-h100:2"},
        {"p5.48xlarge:4", "dgx-h100@aws-p5", "dgx-h100@aws-p5", 4, "dgx-h100@aws-p5:4"},
        {"2x5090", "2x5090", "rtx5090-pcie:x2", 1, "rtx5090-pcie:1x2"}}) {
    const Offer offer = offer_of(typed);
    EXPECT_EQ(offer.name, name);
    EXPECT_EQ(offer.cluster, cluster);
    EXPECT_EQ(offer.nodes, nodes) << typed;
    EXPECT_EQ(cluster_of(offer, offer.nodes), all);
  }
  for (const char* wrong : {"dgx-h100", "dgx-h100:many", "h900:8", ""})
    EXPECT_THROW(offer_of(wrong), UserError) << wrong;
}

struct Drawn {
  double days, price;
  int64_t gpus;
};
// All counts of all offers, each planned by itself.
std::vector<Drawn> every_count(const ForwardQuestion& q) {
  std::vector<Drawn> all;
  for (const Offer& offer : q.offers) {
    for (int64_t nodes = 1; nodes <= offer.nodes; ++nodes) {
      PlanRequest request = q.request;
      request.cluster.name = offer.cluster + ":" + std::to_string(nodes);
      const PlanOrReason found = compare({request}).front();
      if (!found.plan) continue;
      const Prediction& p = found.plan->prediction;
      const double late = p.confidence.most_s.value_or(p.step_time_s) / p.step_time_s;
      const int64_t gpus = found.plan->layout.ranks();
      const double hours = q.tokens / p.tokens_per_s / 3600 / goodput_of(q.failures, gpus) * late;
      all.push_back({hours / 24, hours * double(gpus) * offer.price, gpus});
    }
  }
  return all;
}

TEST(Forward, TriesAllSmallNumbersThenPowersOfTwoAndThreeHalvesOfThem) {
  EXPECT_EQ(tried_nodes(1), (std::vector<int64_t>{1}));
  EXPECT_EQ(tried_nodes(5), (std::vector<int64_t>{1, 2, 3, 4, 5}));
  const std::vector<int64_t> many = tried_nodes(100);
  EXPECT_EQ(std::vector<int64_t>(many.end() - 8, many.end()),
            (std::vector<int64_t>{15, 16, 24, 32, 48, 64, 96, 100}));
}

// What a pool offers, a larger one offers, too: its answer is as good, but for the 1 % that a comparison
// takes as equal.
TEST(Forward, AMoreGenerousOfferIsNeverDearer) {
  for (const bool fewest : {true, false}) {
    double before = 1e30;
    for (const int64_t nodes : {3, 15, 16, 18, 21, 24, 40}) {
      ForwardQuestion q = question(fewest ? 0 : 0.55, 0);
      q.offers = {{"pool", "dgx-a100", nodes, 1.2}};
      if (fewest) q.tokens = 0, q.request.model.name = "gpt3-175b";
      const ForwardAnswer found = forward(q);
      if (!found.chosen) {
        EXPECT_EQ(before, 1e30) << nodes;
        continue;
      }
      const ForwardPoint& p = found.points[*found.chosen];
      const double cost = fewest ? double(p.gpus) : p.most_price;
      EXPECT_LE(cost, before * 1.011) << nodes << " " << p.nodes;
      before = std::min(before, cost);
    }
    EXPECT_LT(before, 1e30);
  }
}

// A step's work is lost back to the last checkpoint; times between failures are exponential.
TEST(Forward, GoodputIsThatOfDrawnFailures) {
  for (const int64_t gpus : {512, 16384, 100000}) {
    Failures f;
    f.restart_s = 300;
    const double between = f.device_hours * 3600 / double(gpus), interval = checkpoint_interval_s(f, gpus);
    std::mt19937_64 random(7);
    std::exponential_distribution<double> failure(1.0 / between);
    double time = 0.0, next = failure(random);
    constexpr int kSegments = 200'000;
    for (int n = 0; n < kSegments; ++n) {
      double needed = interval + f.checkpoint_s;
      while (next < needed) {  // a restart can fail, too
        time += next;
        next = failure(random);
        needed = f.restart_s + interval + f.checkpoint_s;
      }
      time += needed;
      next -= needed;
    }
    EXPECT_NEAR(goodput_of(f, gpus) / (kSegments * interval / time), 1.0, 0.01) << gpus;
  }
}

TEST(Forward, IntervalsLeaveMostOfTheTime) {
  Failures f;
  const double best = checkpoint_interval_s(f, 4096), between = f.device_hours * 3600 / 4096;
  const auto share = [&](double interval) {
    return interval /
           (between * std::exp(f.restart_s / between) * std::expm1((interval + f.checkpoint_s) / between));
  };
  for (const double other : {0.5, 0.8, 1.25, 2.0}) EXPECT_GT(share(best), share(best * other)) << other;
}

TEST(Forward, ADeadlineIsKeptAtTheLeastPrice) {
  const std::vector<Drawn> all = every_count(question(0, 0));
  double before = 1e30;
  for (const double days : {0.7, 1.5, 3.0, 6.0, 12.0}) {
    double best = 1e30;
    for (const Drawn& d : all) {
      if (d.days <= days) best = std::min(best, d.price);
    }
    const ForwardAnswer found = forward(question(days, 0));
    if (best == 1e30) {
      EXPECT_FALSE(found.chosen && found.likely) << days;
      continue;
    }
    ASSERT_TRUE(found.chosen && found.likely) << days;
    const ForwardPoint& p = found.points[*found.chosen];
    EXPECT_NEAR(p.most_price / best, 1.0, 1e-6) << days;
    EXPECT_LE(p.most_days, days);
    EXPECT_LE(p.most_price, before * (1 + 1e-9)) << "more time is never dearer";
    before = p.most_price;
  }
}

TEST(Forward, ABudgetBuysTheLeastTime) {
  const std::vector<Drawn> all = every_count(question(0, 0));
  double before = 1e30;
  for (const double budget : {500.0, 1000.0, 1500.0, 5000.0}) {
    double best = 1e30;
    for (const Drawn& d : all) {
      if (d.price <= budget) best = std::min(best, d.days);
    }
    const ForwardAnswer found = forward(question(0, budget));
    EXPECT_EQ(found.chosen && found.likely, best < 1e30) << budget;
    if (best == 1e30 || !found.chosen) continue;
    EXPECT_NEAR(found.points[*found.chosen].most_days / best, 1.0, 1e-6) << budget;
    EXPECT_LE(best, before);
    before = best;
  }
}

TEST(Forward, WithoutAGoalTheFewestGpusAreTaken) {
  ForwardQuestion q = question(0, 0);
  q.tokens = 0;
  q.request.model.name = "llama3-70b";
  const std::vector<Drawn> all = every_count(q);
  const auto fewest = std::min_element(all.begin(), all.end(),
                                       [](const Drawn& a, const Drawn& b) { return a.gpus < b.gpus; });
  const ForwardAnswer found = forward(q);
  ASSERT_TRUE(found.chosen);
  EXPECT_EQ(found.points[*found.chosen].gpus, fewest->gpus);
}

TEST(Forward, ADeadlineNeedsTokensAndABudgetPrices) {
  ForwardQuestion q = question(3, 0);
  q.tokens = 0;
  EXPECT_THROW(forward(q), UserError);
  q = question(0, 100);
  q.offers[1].price = 0;
  EXPECT_THROW(forward(q), UserError);
}

}  // namespace
}  // namespace mpt::planner
