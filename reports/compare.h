// SPDX-License-Identifier: Apache-2.0
#pragma once

// Measured against predicted. Both are joined by instruction id, so each error has a kind and a stage.

#include <string>
#include <vector>

#include "core/plan.h"
#include "core/timeline.h"
#include "reports/run_result.h"

namespace mpt::reports {

struct ComparisonRow {
  std::string quantity, predicted, measured;
  std::string difference;  // of measured from predicted: "3.2% slower"; empty if another row has it
};

/// How much longer a step took than predicted, as a share of the predicted time; negative: faster.
double slowdown_of(const Plan& plan, const RunResult& result);

/// "Measured is 13.3% slower than predicted: 1.36 s per step, predicted 1.20 s."
std::string verdict_text(const Plan& plan, const RunResult& result);

/// Step time, tokens/s, bubble and the memory of each stage.
std::vector<ComparisonRow> compare_run(const Plan& plan, const RunResult& result);

/// Mean duration of each kind of instruction on each stage, predicted timeline against measured.
std::vector<ComparisonRow> compare_instructions(const StepProgram& program, const Timeline& predicted,
                                                const Timeline& measured);

std::string comparison_table(const std::vector<ComparisonRow>& rows);

}  // namespace mpt::reports
