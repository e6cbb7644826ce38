// SPDX-License-Identifier: Apache-2.0
#pragma once

// RunResult: the measurements of a training run. mpt-run fills it, every report reads it.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/fields.h"
#include "core/plan.h"
#include "core/timeline.h"

namespace mpt::reports {

/// One rank in one step. The communication seconds are those of calls inside compute, with the wait for other
/// ranks. Communication that overlaps with compute appears as idle time if compute had to wait for it.
struct RankRecord {
#include "generated/RankRecord.inc"
};

struct StepRecord {
#include "generated/StepRecord.inc"
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
