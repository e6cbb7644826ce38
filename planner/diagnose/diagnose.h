// SPDX-License-Identifier: Apache-2.0
#pragma once

// Diagnosis: the time of a measured run that its plan did not predict, and the change that would gain most.
// Each cause is removed from the measured durations in turn and the step is simulated again. The difference
// is the cost of the cause, so time for which other ranks would have waited anyway is not counted.

#include <optional>
#include <string>
#include <vector>

#include "planner/diagnose/run_log.h"

namespace mpt::planner {

struct Cause {
#include "generated/Cause.inc"
};

struct Diagnosis {
  double predicted_s = 0.0, measured_s = 0.0;
  std::vector<Cause> causes;  // largest first; only those that cost at least 1 % of the step
  double unexplained_s = 0.0;
  std::optional<Drift> drift;
  std::string doubt;  // why the run is not the plan, if its figures show it
};

/// Inserts a cause in order, if it costs enough.
void add_cause(Diagnosis& diagnosis, Cause cause);

Diagnosis diagnose(const Plan& plan, const MeasuredRun& run);

/// Sentences, the cheapest measurement first: the framework's timers, the kernels of one GPU, and nccl-tests
/// at the size of the messages that the plan expects to cost most.
std::vector<std::string> next_measurements(const Plan& plan, const MeasuredRun& run);

}  // namespace mpt::planner
