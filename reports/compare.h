// SPDX-License-Identifier: Apache-2.0
#pragma once

// Measured against predicted: joined by instruction id, so the error has a kind and a stage.

#include <string>
#include <vector>

#include "core/plan.h"
#include "core/timeline.h"
#include "reports/run_result.h"

namespace mpt::reports {

struct ComparisonRow {
  std::string quantity;
  std::string predicted;
  std::string measured;
  std::string error;  // "+3.2%", or empty
};

/// Step time, bubble, tokens/s and the memory of each pipeline rank.
std::vector<ComparisonRow> compare_run(const Plan& plan, const RunResult& result);

/// Mean duration of each kind of instruction on each stage, predicted timeline against measured.
std::vector<ComparisonRow> compare_instructions(const StepProgram& program, const Timeline& predicted,
                                                const Timeline& measured);

std::string comparison_table(const std::vector<ComparisonRow>& rows);

}  // namespace mpt::reports
