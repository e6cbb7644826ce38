// SPDX-License-Identifier: Apache-2.0

// Balanced stages against every division there is.

#include "planner/search/price_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

namespace mpt::planner {
namespace {

double slowest(const std::vector<double>& layer_s, double before_s, double after_s,
               const std::vector<int64_t>& counts) {
  double worst = 0.0;
  size_t layer = 0;
  for (size_t s = 0; s < counts.size(); ++s) {
    double work = (s == 0 ? before_s : 0.0) + (s + 1 == counts.size() ? after_s : 0.0);
    for (int64_t i = 0; i < counts[s]; ++i) work += layer_s[layer++];
    worst = std::max(worst, work);
  }
  return worst;
}

double best_of_all(const std::vector<double>& layer_s, double before_s, double after_s, size_t stages) {
  double best = std::numeric_limits<double>::infinity();
  std::vector<int64_t> counts;
  const std::function<void(int64_t)> divide = [&](int64_t left) {
    if (counts.size() + 1 == stages) {
      counts.push_back(left);
      best = std::min(best, slowest(layer_s, before_s, after_s, counts));
      counts.pop_back();
      return;
    }
    for (int64_t here = 1; left - here >= int64_t(stages - counts.size() - 1); ++here) {
      counts.push_back(here);
      divide(left - here);
      counts.pop_back();
    }
  };
  divide(int64_t(layer_s.size()));
  return best;
}

TEST(Balance, IsAsFastAsTheBestOfAllDivisions) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> work(0.1, 3.0);
  for (int repeat = 0; repeat < 300; ++repeat) {
    std::vector<double> layers(1 + random() % 11);
    for (double& layer : layers) layer = random() % 3 == 0 ? 1.0 : work(random);
    const double before = random() % 2 == 0 ? 0.0 : work(random), after = work(random);
    const size_t stages = 1 + random() % layers.size();
    const auto counts = balanced_stages(layers, before, after, int64_t(stages));
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), int64_t(layers.size()));
    EXPECT_GE(*std::min_element(counts.begin(), counts.end()), 1);
    const double best = best_of_all(layers, before, after, stages);
    EXPECT_NEAR(slowest(layers, before, after, counts), best, 1e-9 * best) << repeat;
  }
}

TEST(Balance, EarlyStagesHoldFewerWhereItCostsNothing) {
  const std::vector<double> layers(7, 1.0);
  EXPECT_EQ(balanced_stages(layers, 0.0, 0.0, 3), (std::vector<int64_t>{1, 3, 3}));
  EXPECT_EQ(balanced_stages(layers, 0.0, 2.0, 3), (std::vector<int64_t>{3, 3, 1}));
}

}  // namespace
}  // namespace mpt::planner
