// SPDX-License-Identifier: Apache-2.0
#include "profiler/measure/stopping_rule.h"

#include "base/clock.h"
#include "base/error.h"
#include "core/plan.h"

namespace mpt::profiler {
namespace {

// Linear interpolation between the neighbours, as most statistics programs do it (Hyndman and Fan 1996, type
// 7).
double quantile(const std::vector<double>& sorted, double share) {
  const double at = share * double(sorted.size() - 1);
  const auto below = size_t(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - double(below));
}

}  // namespace

Measurement summarize(std::vector<double> samples) {
  MPT_CHECK(!samples.empty(), "no samples");
  std::sort(samples.begin(), samples.end());
  const double median = quantile(samples, 0.5);
  const double range = quantile(samples, 0.75) - quantile(samples, 0.25);
  return {median, median > 0.0 ? range / median : 0.0, int(samples.size())};
}

Measurement measure(const StoppingRule& rule, const std::function<void()>& body,
                    const std::function<void()>& settle) {
  for (int i = 0; i < rule.warm_up; ++i) body();
  settle();
  const double start = now_s();
  std::vector<double> samples;
  int calls = 1;
  while (true) {
    const double before = now_s();
    for (int i = 0; i < calls; ++i) body();
    settle();
    const double elapsed = now_s() - before;
    if (elapsed < rule.least_sample_s && samples.empty() && calls < (1 << 20)) {
      calls *= 2;
      continue;
    }
    samples.push_back(elapsed / calls);
    if (int(samples.size()) < rule.least_samples) continue;
    if (now_s() - start > rule.budget_s || summarize(samples).spread < rule.spread_wanted)
      return summarize(samples);
  }
}

Measurement repeat_while_noisy(const std::function<Measurement()>& measure_once) {
  Measurement best = measure_once();
  for (int repeat = 0; repeat < kMostRepeats && best.spread > kNoisySpread; ++repeat) {
    const Measurement again = measure_once();
    if (again.seconds < best.seconds || again.spread <= kNoisySpread) best = again;
  }
  return best;
}

}  // namespace mpt::profiler
