// SPDX-License-Identifier: Apache-2.0
#pragma once

// The HTML report: one file that needs no network, about a plan alone or about a plan and its run.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/plan.h"
#include "core/timeline.h"
#include "reports/run_result.h"

namespace mpt::reports {

/// Lines for the first screen that are not in the plan, such as a training's cost.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// `export_target` writes the plan's launch files; empty if no export does.
std::string plan_report(const Plan& plan, const StepProgram& program, const Timeline& predicted,
                        const Facts& facts = {}, const std::string& export_target = "");
/// The report's data, which reports/html/draw.js draws.
nlohmann::ordered_json plan_report_data(const Plan& plan, const StepProgram& program,
                                        const Timeline& predicted, const std::string& export_target = "");
/// `predicted` is absent for plans too large to keep their simulated step.
std::string run_report(const Plan& plan, const StepProgram& program, const std::optional<Timeline>& predicted,
                       const RunResult& result);

/// Text for HTML and SVG.
std::string escape_html(const std::string& text);

}  // namespace mpt::reports
