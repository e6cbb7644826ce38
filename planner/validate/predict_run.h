// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the cost and memory models say about a published run.

#include <optional>
#include <string>
#include <vector>

#include "core/plan.h"
#include "planner/cost/calibration.h"
#include "planner/explain/explain.h"
#include "planner/validate/run_record.h"

namespace mpt::planner {

/// A layout that the record leaves possible.
struct PossibleRun {
  Layout layout;
  double step_s = 0.0;
  int64_t peak_bytes = 0;
  bool fits = true;
};

struct RunPrediction {
  Layout layout;
  double step_s = 0.0;
  double least_s = 0.0, most_s = 0.0;  // of the values that unknown fields may have had
  double peak_gib = 0.0;               // in the terms of the measured value
  int64_t limit_bytes = 0;             // of tensors, on one rank
  bool fits = true;                    // in that
  std::vector<RankMemory> memory;      // of tensors, by pipeline rank
  Breakdown breakdown;                 // where the step goes
  std::vector<std::string> filled;
  // What the prediction rests on.
  ModelSpec model;
  ClusterSpec cluster;
  Workload workload;
  Execution execution;   // as the record's words say, before the device is known
  double batches = 1.0;  // the published batch over that of the workload
  int64_t in_host = 0;   // layers whose activations lie in the host's memory
  bool unlike_stages = false, pending_work = false;
  std::vector<PossibleRun> possible;
};

/// Simulates the run's own layout; what was not published is tried in all its likely values, of which the
/// fastest that fits stands. Throws UserError with the reason why the run cannot be predicted.
/// `streams`: the step operator by operator (explain/streams.h).
RunPrediction predict_run(const RunRecord& run, const Calibration& calibration = kCalibration,
                          bool streams = false);

}  // namespace mpt::planner
