// SPDX-License-Identifier: Apache-2.0
#include "planner/search/balance.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace mpt::planner {
namespace {

// Fills stages from the last to the first, each up to `limit_s` and leaving a layer for every stage before
// it. The slowest stage's work.
double fill(std::span<const double> layer_s, double before_s, double after_s,
            std::span<const double> slowness, double limit_s, std::vector<int64_t>& counts) {
  const auto stages = int64_t(counts.size());
  auto left = int64_t(layer_s.size());
  double slowest = 0.0;
  for (int64_t s = stages - 1; s >= 0; --s) {
    double work = (s == stages - 1 ? after_s : 0.0) + (s == 0 ? before_s : 0.0);
    const double times = slowness.empty() ? 1.0 : slowness[size_t(s)];
    int64_t count = 0;
    while (left > s) {
      const double next = layer_s[size_t(left - 1)];
      // The first stage takes what is left; every other one at least a layer.
      if (s > 0 && count > 0 && times * (work + next) > limit_s) break;
      work += next;
      --left;
      ++count;
    }
    counts[size_t(s)] = count;
    slowest = std::max(slowest, times * work);
  }
  return slowest;
}

}  // namespace

std::vector<int64_t> balanced_stages(std::span<const double> layer_s, double before_s, double after_s,
                                     int64_t stages, std::span<const double> slowness) {
  MPT_CHECK(stages >= 1 && int64_t(layer_s.size()) >= stages, "{} stages for {} layers", stages,
            layer_s.size());
  std::vector<int64_t> counts(size_t(stages), 0);
  const auto filled = [&](double limit_s) {
    return fill(layer_s, before_s, after_s, slowness, limit_s, counts);
  };
  const double work = std::accumulate(layer_s.begin(), layer_s.end(), before_s + after_s);
  const double most = slowness.empty() ? 1.0 : *std::max_element(slowness.begin(), slowness.end());
  double rate = double(stages);
  if (!slowness.empty())
    rate = std::accumulate(slowness.begin(), slowness.end(), 0.0,
                           [](double sum, double s) { return sum + 1.0 / s; });
  // Filling within a limit succeeds if any division does, so the least limit that works is the optimum; the
  // work that a filling really has narrows the search to one of the few possible values.
  double low = work / rate * (1.0 - 1e-12);
  double high = filled(work * most);
  high = std::min(high, filled(low));
  for (int round = 0; round < 60 && high - low > 1e-12 * work * most; ++round) {
    const double middle = 0.5 * (low + high);
    const double reached = filled(middle);
    (reached <= middle ? high : low) = reached <= middle ? reached : middle;
  }
  filled(high * (1.0 + 1e-12));
  return counts;
}

}  // namespace mpt::planner
