// SPDX-License-Identifier: Apache-2.0
#include "planner/search/price_cache.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace mpt::planner {
namespace {

struct Filling {
  double slowest_s = 0.0;
  double next_limit_s = std::numeric_limits<double>::infinity();  // any limit below fills alike
};

// Fills stages from the last to the first, each up to `limit_s` and leaving a layer for every stage before
// it.
Filling fill(std::span<const double> layer_s, double before_s, double after_s,
             std::span<const double> slowness, double limit_s, std::vector<int64_t>& counts) {
  const auto stages = int64_t(counts.size());
  auto left = int64_t(layer_s.size());
  Filling filling;
  for (int64_t s = stages - 1; s >= 0; --s) {
    double work = (s == stages - 1 ? after_s : 0.0) + (s == 0 ? before_s : 0.0);
    const double times = slowness.empty() ? 1.0 : slowness[size_t(s)];
    int64_t count = 0;
    while (left > s) {
      const double next = layer_s[size_t(left - 1)];
      // The first stage takes what is left; every other one at least a layer.
      if (s > 0 && count > 0 && times * (work + next) > limit_s) {
        filling.next_limit_s = std::min(filling.next_limit_s, times * (work + next));
        break;
      }
      work += next;
      --left;
      ++count;
    }
    counts[size_t(s)] = count;
    filling.slowest_s = std::max(filling.slowest_s, times * work);
  }
  return filling;
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
  // Filling within a limit succeeds if any division does, so the least limit that works is the optimum. The
  // work that a filling really has works as a limit; where a limit fails, so do all that fill alike.
  double low = work / rate * (1.0 - 1e-12);
  double high = std::min(filled(work * most).slowest_s, filled(low).slowest_s);
  while (high - low > 1e-12 * work * most) {
    const double middle = 0.5 * (low + high);
    const Filling filling = filled(middle);
    high = std::min(high, filling.slowest_s);
    if (filling.slowest_s > middle) low = std::min(filling.next_limit_s, filling.slowest_s);
  }
  filled(high * (1.0 + 1e-12));
  return counts;
}

}  // namespace mpt::planner
