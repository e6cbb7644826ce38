// SPDX-License-Identifier: Apache-2.0
#pragma once

// What to do with a plan or a run that lies before one: commands to type, and what to try if it goes wrong.

#include <string>
#include <vector>

#include "core/plan.h"
#include "reports/run_result.h"

namespace mpt::reports {

/// A layout that needs less than this share of a plan's memory is one to turn to where the plan runs out.
inline constexpr double kRoomierShare = 0.9;

struct NextStep {
  std::string title, text;
  std::string command;  // may be empty
};
/// What mpt-run takes: "--data FILE" of text, whose bytes are 256 tokens, or of another vocabulary "--data
/// FILE
/// --data-format uint16".
std::string data_options(const Plan& plan);
/// `export_target` writes the plan's launch files; empty where nothing does.
std::vector<NextStep> next_steps(const Plan& plan, const std::string& export_target);
std::vector<NextStep> next_steps(const Plan& plan, const RunResult& result);

}  // namespace mpt::reports
