// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/optimizer_options.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace mpt::runtime {

double learning_rate_at(const TrainOptions& o, int64_t step) {
  if (step < o.warmup_steps) return o.learning_rate * double(step + 1) / double(o.warmup_steps);
  const int64_t span = std::max<int64_t>(1, o.steps - o.warmup_steps);
  const double progress = std::min(1.0, double(step - o.warmup_steps) / double(span));
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return o.minimum_learning_rate + (o.learning_rate - o.minimum_learning_rate) * cosine;
}

}  // namespace mpt::runtime
