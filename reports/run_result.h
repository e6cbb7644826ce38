// SPDX-License-Identifier: Apache-2.0
#pragma once

// RunResult: the measurements of a training run. mpt-run fills it, every report reads it.

#include <cstdint>
#include <optional>
#include <vector>

#include "core/plan.h"
#include "core/timeline.h"

namespace mpt::reports {

/// One rank in one step. The communication seconds are those of calls inside compute, with the wait for other
/// ranks. Communication that overlaps with compute appears as idle time if compute had to wait for it.
struct RankRecord {
  int64_t rank = 0;
  double compute_s = 0.0;  // without the communication inside it
  double tensor_s = 0.0, context_s = 0.0, expert_s = 0.0, sharding_s = 0.0;
  double transfer_s = 0.0;   // in sends and receives between stages, overlapped with compute
  double gradients_s = 0.0;  // in the reduction of gradients and of their norm, at the step's end
  double idle_s = 0.0;       // the compute stream had nothing to do
  double data_wait_s = 0.0;
  int64_t memory_bytes = 0, peak_bytes = 0;
  /// Copies of tokens that its spread experts got, as a ratio to an even share, in the way that its memory
  /// depends on it (runtime/train/rank_worker.h). 0 if no experts are spread.
  double expert_load = 0.0;
};

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
  double model_flop_utilization = 0.0;
  std::vector<RankRecord> ranks;
  std::vector<InstructionDuration> instructions;  // means by kind and stage, of the first replica
  std::vector<int64_t> stragglers;        // ranks that computed clearly longer than others of their stage
  std::optional<double> next_token_loss;  // mean over next-token modules, if the model has some
  std::optional<double> validation_loss;  // if a pass over validation data followed
};

struct RunResult {
  std::vector<StepRecord> steps;
  Timeline timeline;                // of the step with the median time; pipeline ranks of the first replica
  std::vector<int64_t> peak_bytes;  // per pipeline rank, the fullest of its replicas
  /// Predicted peak per pipeline rank with that rank's `expert_load`; empty if no experts are spread.
  std::vector<int64_t> predicted_at_load;
  std::vector<double> expert_load;  // per pipeline rank, the highest of its replicas and steps
  bool stopped = false;             // a signal ended it before its last step
};

/// Mean durations by kind and stage.
std::vector<InstructionDuration> mean_durations(const StepProgram& program, const Timeline& timeline);

/// Ranks that computed longer than `factor` times the median of their pipeline rank, which `stage_of` gives.
/// Groups of fewer than three have no straggler.
std::vector<int64_t> find_stragglers(const std::vector<RankRecord>& ranks,
                                     const std::vector<int64_t>& stage_of, double factor = 1.5);

/// 0 for no values.
double median(std::vector<double> values);
/// The first steps of a run warm caches up and are left out of medians. Short runs leave out none.
size_t warm_up_steps(size_t steps);

/// Median step time, without the warm-up steps.
double median_step_time_s(const RunResult& result);
double median_bubble_share(const RunResult& result);

}  // namespace mpt::reports
