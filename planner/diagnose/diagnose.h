// SPDX-License-Identifier: Apache-2.0
#pragma once

// Diagnosis: where the time of a measured run went that its plan did not foresee, and what would win back
// most. Each cause is taken out of the measured durations in turn and the step simulated again: what it costs
// is the difference, so that time which others would have waited anyway is not counted.

#include <optional>
#include <string>
#include <vector>

#include "planner/diagnose/run_log.h"

namespace mpt::planner {

struct Cause {
  std::string name;      // "slow rank 3"
  std::string evidence;  // what was seen
  std::string change;    // what to do
  double seconds = 0.0;  // of the step that it costs
};

struct Diagnosis {
  double predicted_s = 0.0, measured_s = 0.0;
  std::vector<Cause> causes;  // largest first; only those that cost at least 1 % of the step
  double unexplained_s = 0.0;
  std::optional<Drift> drift;
  std::string doubt;  // why the run is not the plan, where its figures say so
};

/// In its place, if it costs enough.
void add_cause(Diagnosis& diagnosis, Cause cause);

Diagnosis diagnose(const Plan& plan, const MeasuredRun& run);

}  // namespace mpt::planner
