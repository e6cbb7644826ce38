// SPDX-License-Identifier: Apache-2.0
#pragma once

// MeasuredRun: what a log of a run says about its steps.

#include <filesystem>
#include <string>
#include <vector>

#include "core/plan.h"
#include "reports/run_result.h"

namespace mpt::planner {

struct MeasuredRun {
  std::string source;                             // for people: "mpt-run's log, 40 steps"
  double step_time_s = 0.0;                       // median, the first steps left out
  double data_wait_s = 0.0;                       // of the slowest rank, mean
  std::vector<reports::RankRecord> ranks;         // means; empty where the log has none
  std::vector<InstructionDuration> instructions;  // means by kind and stage; empty where the log has none
};

/// A log of mpt-run (--log) or of a framework with a log reader (frameworks/registry.h), or a trace of
/// mpt-run
/// (--trace), told apart by its content. Throws UserError.
MeasuredRun read_run_log(const std::filesystem::path& file, const Plan& plan);

/// The frameworks whose logs it reads, with what their lines of steps have.
std::string readable_logs();

}  // namespace mpt::planner
