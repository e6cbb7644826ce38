// SPDX-License-Identifier: Apache-2.0
#include "planner/search/balance.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace mpt::planner {
namespace {

// Fills stages from the last to the first, each up to `limit_s` and leaving a layer for every stage before
// it. The slowest stage's work.
double fill(std::span<const double> layer_s, double before_s, double after_s, double limit_s,
            std::vector<int64_t>& counts) {
  const auto stages = int64_t(counts.size());
  auto left = int64_t(layer_s.size());
  double slowest = 0.0;
  for (int64_t s = stages - 1; s >= 0; --s) {
    double work = (s == stages - 1 ? after_s : 0.0) + (s == 0 ? before_s : 0.0);
    int64_t count = 0;
    while (left > s) {
      const double next = layer_s[size_t(left - 1)];
      // The first stage takes what is left; every other one at least a layer.
      if (s > 0 && count > 0 && work + next > limit_s) break;
      work += next;
      --left;
      ++count;
    }
    counts[size_t(s)] = count;
    slowest = std::max(slowest, work);
  }
  return slowest;
}

}  // namespace

std::vector<int64_t> balanced_stages(std::span<const double> layer_s, double before_s, double after_s,
                                     int64_t stages) {
  MPT_CHECK(stages >= 1 && int64_t(layer_s.size()) >= stages, "{} stages for {} layers", stages,
            layer_s.size());
  std::vector<int64_t> counts(size_t(stages), 0);
  const double total = std::accumulate(layer_s.begin(), layer_s.end(), before_s + after_s);
  // Filling within a limit succeeds if any division does, so the least limit that works is the optimum; the
  // work that a filling really has narrows the search to one of the few possible values.
  double low = total / double(stages) * (1.0 - 1e-12);
  double high = fill(layer_s, before_s, after_s, total, counts);
  high = std::min(high, fill(layer_s, before_s, after_s, low, counts));
  for (int round = 0; round < 60 && high - low > 1e-12 * total; ++round) {
    const double middle = 0.5 * (low + high);
    const double reached = fill(layer_s, before_s, after_s, middle, counts);
    (reached <= middle ? high : low) = reached <= middle ? reached : middle;
  }
  fill(layer_s, before_s, after_s, high * (1.0 + 1e-12), counts);
  return counts;
}

}  // namespace mpt::planner
