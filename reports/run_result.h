// SPDX-License-Identifier: Apache-2.0
#pragma once

// RunResult: what a training run measured. Filled by mpt-run, read by every report.

#include <cstdint>
#include <optional>
#include <vector>

#include "core/timeline.h"

namespace mpt::reports {

struct StepRecord {
  int64_t step = 0;
  double loss = 0.0;           // mean over the step's tokens, natural log
  double gradient_norm = 0.0;  // before clipping
  double learning_rate = 0.0;
  double step_time_s = 0.0;
  double tokens_per_s = 0.0;
  double bubble_share = 0.0;  // from the ranks' own timelines
  double data_wait_s = 0.0;   // slowest rank
  bool skipped = false;       // loss or gradients were not finite: the weights stayed as they were
  double loss_scale = 1.0;
  std::optional<double> validation_loss;  // where a pass over validation data followed
};

struct RunResult {
  std::vector<StepRecord> steps;
  Timeline timeline;  // of the step whose time is the median; pipeline ranks of the first replica
  std::vector<int64_t> peak_bytes;  // per pipeline rank, the fullest of its replicas
};

/// Median step time; the first steps warm caches up and are left out where there are enough others.
double median_step_time_s(const RunResult& result);
double median_bubble_share(const RunResult& result);

}  // namespace mpt::reports
