// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a run measured, from its log.

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
  double step_time_s = 0.0;                       // median, the first steps left out; 0 where no step ended
  double data_wait_s = 0.0;                       // of the slowest rank, mean
  std::vector<reports::RankRecord> ranks;         // means; empty where the log has none
  std::vector<InstructionDuration> instructions;  // means by kind and stage; empty where the log has none
  std::vector<StepTime> steps;                    // in order, the first ones left out
  std::array<double, frameworks::kStepParts> part_s{};  // medians by StepPart; 0 where a part has no timer
  std::vector<Trouble> troubles;
  int64_t peak_bytes = 0;   // allocated on the fullest rank that speaks; 0 where the log does not say
  double flop_per_s = 0.0;  // of one GPU, as the framework counts; 0 where the log does not say
  std::string finer;        // what makes the framework log where time goes; empty where nothing is known

  double part(frameworks::StepPart p) const { return part_s[size_t(p)]; }
};

/// The text of a log of mpt-run (--log) or of a framework with a log reader (frameworks/log.h), told apart by
/// its content; `name` is its name in errors. A log without steps counts where it says why. Throws UserError,
/// also for a log of another batch, sequence length or number of GPUs than the plan's.
MeasuredRun read_run_log(const std::string& text, const std::string& name, const Plan& plan);

/// The frameworks whose logs it reads, with what their lines of steps have.
std::string readable_logs();

/// Throws UserError that names `file`: for a log that no reader knows, and for one whose batch, sequence
/// length or number of GPUs are not the plan's.
MeasuredRun read_framework_log(const std::string& text, const std::string& file, const Plan& plan);

}  // namespace mpt::planner
