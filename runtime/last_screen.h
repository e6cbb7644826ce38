// SPDX-License-Identifier: Apache-2.0
#pragma once

// What mpt-run prints for people: what it starts with, and the last screen with measured beside predicted.

#include <filesystem>
#include <string>
#include <vector>

#include "base/terminal.h"
#include "core/plan.h"
#include "reports/run_result.h"

namespace mpt::runtime {

/// What the last screen tells beside plan and result. Paths are as they were typed; empty: none.
struct RunFacts {
  std::string plan{}, log{}, trace{}, report{}, checkpoints{};
  std::filesystem::path saved{};  // the newest checkpoint
  int64_t cores = 0;              // of this machine
  double others_share = 0.0;      // of its cores' time that other programs took
};

/// Measured beside predicted, what may explain the difference, what was written, what to type next.
std::string last_screen(const Plan& plan, const reports::RunResult& result, const RunFacts& facts,
                        const Palette& palette);

/// What is known to make predictions and measurements differ and was the case here.
std::vector<std::string> possible_causes(const Plan& plan, const reports::RunResult& result,
                                         const RunFacts& facts);

}  // namespace mpt::runtime
