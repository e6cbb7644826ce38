// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace mpt::runtime {

struct TrainOptions {
  int64_t steps = 100;
  double learning_rate = 1e-3;
  double minimum_learning_rate = 1e-4;  // where the cosine ends
  int64_t warmup_steps = 10;
  double clip = 1.0;  // gradient norm; 0 is no clipping
  double weight_decay = 0.1;
  double beta1 = 0.9, beta2 = 0.95;
  double epsilon = 1e-8;
  uint64_t seed = 1;
  std::chrono::milliseconds timeout{300'000};
};

/// Linear warm-up, then half a cosine down to the minimum (Loshchilov and Hutter 2017, arXiv:1608.03983, eq.
/// 5 without restarts). `step` counts from 0.
double learning_rate_at(const TrainOptions& options, int64_t step);

}  // namespace mpt::runtime
