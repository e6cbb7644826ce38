// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace mpt::runtime {

/// Decides which steps print a line. The first three and the last do, then every tenth, at most one a second.
/// After five seconds without a line the next step prints one.
class LinePacer {
 public:
  bool is_due(int64_t step, int64_t last_step, double now_s) {
    constexpr int kFirst = 3;
    constexpr double kMostSilence_s = 5.0, kLeastSilence_s = 1.0;
    const double silence_s = now_s - printed_s_;
    const bool due = seen_++ < kFirst || step == last_step || silence_s >= kMostSilence_s ||
                     (step % 10 == 0 && silence_s >= kLeastSilence_s);
    if (due) printed_s_ = now_s;
    return due;
  }

 private:
  int seen_ = 0;
  double printed_s_ = 0.0;
};

}  // namespace mpt::runtime
