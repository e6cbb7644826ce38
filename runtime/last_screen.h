// SPDX-License-Identifier: Apache-2.0
#pragma once

// mpt-run's output for users: the start, and the last screen, which compares measured with predicted values.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/terminal.h"
#include "core/plan.h"
#include "reports/run_result.h"

namespace mpt::runtime {

/// Facts for the last screen that are not in plan and result. Paths are as typed; empty: none.
struct RunFacts {
  std::string plan{}, log{}, tensorboard{}, metrics{}, trace{}, report{}, checkpoints{};
  std::filesystem::path saved{};                        // the newest checkpoint
  std::map<std::filesystem::path, std::string> lost{};  // why files lack something
  int64_t cores = 0;                                    // of this machine
  double others_share = 0.0;                            // share of the cores' time that other programs took
};

/// Measured and predicted values, possible causes of differences, files written, next commands.
std::string last_screen(const Plan& plan, const reports::RunResult& result, const RunFacts& facts,
                        const Palette& palette);

/// Known causes of differences between prediction and measurement that apply to this run.
std::vector<std::string> possible_causes(const Plan& plan, const reports::RunResult& result,
                                         const RunFacts& facts);

}  // namespace mpt::runtime
