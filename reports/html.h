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

/// What an axis of the layout talks over: the outermost level of the network that it crosses.
struct AxisLink {
  std::string axis;
  int64_t degree = 1;
  LinkLevel level;
};

/// What the plan alone does not know.
struct ReportExtras {
  std::vector<std::pair<std::string, std::string>>
      facts;  // lines for the first screen, such as a training's cost
  std::vector<AxisLink> links;
};

std::string plan_report(const Plan& plan, const StepProgram& program, const Timeline& predicted,
                        const ReportExtras& extras = {});
/// `predicted` is absent for plans too large to keep their simulated step.
std::string run_report(const Plan& plan, const StepProgram& program, const std::optional<Timeline>& predicted,
                       const RunResult& result);

/// A page of sections, each a heading and its HTML. Nothing in it moves: it needs no script.
std::string static_page(const std::string& title, const std::string& subtitle,
                        const std::vector<std::pair<std::string, std::string>>& sections);

/// Text for HTML and SVG.
std::string escape_html(const std::string& text);

}  // namespace mpt::reports
