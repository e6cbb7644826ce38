// SPDX-License-Identifier: Apache-2.0
#pragma once

// The next steps for a user with a plan or a run: commands to type, and remedies if something goes wrong.

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan.h"
#include "reports/run_result.h"

namespace mpt::reports {

/// A layout below this share of a plan's memory is an alternative if the plan runs out of memory.
inline constexpr double kRoomierShare = 0.9;

struct NextStep {
  std::string title, text;
  std::string command;  // may be empty
};
/// mpt-run's options for data: "--data FILE" for text, with bytes as 256 tokens. For another vocabulary
/// "--data FILE --data-format uint16".
std::string data_options(const Plan& plan);
/// Of a token in such a file.
int64_t token_bytes(const Plan& plan);
/// `export_target` writes the plan's launch files; empty if no export does.
std::vector<NextStep> next_steps(const Plan& plan, const std::string& export_target);
std::vector<NextStep> next_steps(const Plan& plan, const RunResult& result);

}  // namespace mpt::reports
