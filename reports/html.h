// SPDX-License-Identifier: Apache-2.0
#pragma once

// The HTML report: one file, no network. Of a plan alone, or of a plan and the run that executed it.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/plan.h"
#include "core/timeline.h"
#include "reports/run_result.h"

namespace mpt::reports {

/// Lines for the first screen that the plan does not know, such as a training's cost.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// `export_target` writes the plan's launch files; empty where nothing does.
std::string plan_report(const Plan& plan, const StepProgram& program, const Timeline& predicted,
                        const Facts& facts = {}, const std::string& export_target = "");
/// What that report is drawn from by reports/html/draw.js.
nlohmann::ordered_json plan_report_data(const Plan& plan, const StepProgram& program,
                                        const Timeline& predicted, const std::string& export_target = "");
/// `predicted` is absent for plans too large to keep their simulated step.
std::string run_report(const Plan& plan, const StepProgram& program, const std::optional<Timeline>& predicted,
                       const RunResult& result);

/// Text for HTML and SVG.
std::string escape_html(const std::string& text);

}  // namespace mpt::reports
