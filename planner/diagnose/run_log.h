// SPDX-License-Identifier: Apache-2.0
#pragma once

// The measurements of a run, from its log.

#include <array>
#include <string>
#include <vector>

#include "core/plan.h"
#include "planner/diagnose/drift.h"
#include "planner/diagnose/trouble.h"
#include "reports/run_result.h"

namespace mpt::planner {

struct MeasuredRun {
  std::string source;                             // for people: "mpt-run's log, 40 steps"
  double step_time_s = 0.0;                       // median, the first steps left out; 0 if no step ended
  double data_wait_s = 0.0;                       // of the slowest rank, mean
  std::vector<reports::RankRecord> ranks;         // means; empty if the log has none
  std::vector<InstructionDuration> instructions;  // means by kind and stage; empty if the log has none
  std::vector<StepTime> steps;                    // in order, the first ones left out
  std::array<double, frameworks::kStepParts> part_s{};  // medians by StepPart; 0 if a part has no timer
  std::vector<Trouble> troubles;
  int64_t peak_bytes = 0;   // allocated on the fullest rank in the log; 0 if the log has none
  double flop_per_s = 0.0;  // of one GPU, as the framework counts; 0 if the log has none
  std::string finer;        // how to make the framework log parts of a step; empty if unknown

  double part(frameworks::StepPart p) const { return part_s[size_t(p)]; }
};

/// Reads a log of mpt-run (--log) or of a framework with a log reader (frameworks/log.h), recognised by its
/// content; `name` is its name in errors. A log without steps is accepted if it says why. Throws UserError,
/// also for a log of another batch, sequence length or number of GPUs than the plan's.
MeasuredRun read_run_log(const std::string& text, const std::string& name, const Plan& plan);

/// The frameworks with log readers, and the values in their step lines.
std::string readable_logs();

/// Throws UserError that names `file`, for a log that no reader knows, and for a log with another batch,
/// sequence length or number of GPUs than the plan's.
MeasuredRun read_framework_log(const std::string& text, const std::string& file, const Plan& plan);

}  // namespace mpt::planner
