// SPDX-License-Identifier: Apache-2.0
#pragma once

// RunResult: what a training run measured. Filled by mpt-run, read by every report.

#include <cstdint>
#include <optional>
#include <vector>

#include "core/plan.h"
#include "core/timeline.h"

namespace mpt::reports {

/// What one rank did in one step. The communication seconds are those of calls inside compute, waiting for
/// other ranks included; what runs beside compute shows as idle time where compute had to wait for it.
struct RankRecord {
  int64_t rank = 0;
  double compute_s = 0.0;  // without the communication inside it
  double tensor_s = 0.0, context_s = 0.0, expert_s = 0.0, sharding_s = 0.0;
  double transfer_s = 0.0;   // in sends and receives between stages, beside compute
  double gradients_s = 0.0;  // in the reduction of gradients and of their norm: the latency of a step's end
  double idle_s = 0.0;       // the compute stream had nothing to do
  double data_wait_s = 0.0;
  int64_t memory_bytes = 0, peak_bytes = 0;
  /// Copies that its spread experts got, over an even share, as its memory feels it
  /// (runtime/train/rank_worker.h); 0 where no experts are spread.
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
  std::optional<double> next_token_loss;  // of next-token modules, their mean, where the model has some
  std::optional<double> validation_loss;  // where a pass over validation data followed
};

struct RunResult {
  std::vector<StepRecord> steps;
  Timeline timeline;  // of the step whose time is the median; pipeline ranks of the first replica
  std::vector<int64_t> peak_bytes;  // per pipeline rank, the fullest of its replicas
  /// Per pipeline rank, with as many copies as the fullest of its replicas' experts got; empty where no
  /// experts are spread.
  std::vector<int64_t> predicted_at_load;
  std::vector<double> expert_load;  // per pipeline rank, the highest of its replicas and steps
  bool stopped = false;             // somebody asked it to end before its last step
};

/// Mean durations by kind and stage.
std::vector<InstructionDuration> mean_durations(const StepProgram& program, const Timeline& timeline);

/// Ranks whose compute took more than `factor` times the median of those of their pipeline rank, given by
/// `stage_of`; groups of fewer than three have no straggler.
std::vector<int64_t> find_stragglers(const std::vector<RankRecord>& ranks,
                                     const std::vector<int64_t>& stage_of, double factor = 1.5);

/// Of no values: 0.
double median(std::vector<double> values);
/// How many of a run's first steps warm caches up and are left out of medians: none where there are few.
size_t warm_up_steps(size_t steps);

/// Median step time; the first steps warm caches up and are left out where there are enough others.
double median_step_time_s(const RunResult& result);
double median_bubble_share(const RunResult& result);

}  // namespace mpt::reports
