// SPDX-License-Identifier: Apache-2.0
#pragma once

// When to stop measuring, and the result: the median, and the interquartile range as a share of it.

#include <functional>
#include <vector>

namespace mpt::profiler {

struct Measurement {
  double seconds = 0.0;  // median of one call
  double spread = 0.0;   // interquartile range / median
  int samples = 0;
};

struct StoppingRule {
  int warm_up = 2;  // calls before the first sample
  int least_samples = 5;
  double budget_s = 0.3;  // of one measurement, warm-up excluded
  double spread_wanted = 0.02;
  double least_sample_s = 2e-4;  // short operators repeat within a sample: clocks are coarse
};

/// Median and spread of samples in any order; at least one.
Measurement summarize(std::vector<double> samples);

/// Calls `body` until the rule is met. `settle` ends a sample: it returns once the work of `body` is done.
Measurement measure(
    const StoppingRule& rule, const std::function<void()>& body, const std::function<void()>& settle = [] {});

/// How often a noisy measurement (kNoisySpread, core/plan.h) is repeated.
inline constexpr int kMostRepeats = 2;
/// The fastest of at most 1 + kMostRepeats measurements. A quiet one is taken at once.
Measurement repeat_while_noisy(const std::function<Measurement()>& measure_once);

}  // namespace mpt::profiler
