// SPDX-License-Identifier: Apache-2.0
#pragma once

// A run beside its plan: what was measured, what the planner makes of it, and whether another layout is
// better. mpt-plan diagnose and programs in other languages ask here.

#include <string>
#include <vector>

#include "planner/answer/known_plan.h"
#include "planner/api.h"
#include "planner/diagnose/diagnose.h"

namespace mpt::planner {

struct DiagnosedRun {
  MeasuredRun run;  // without a step where the log ends before the first one: then there is no more
  Diagnosis diagnosis;
  std::vector<std::string> judgement;

  bool has_steps() const { return run.step_time_s > 0.0; }
};

/// Whether to search for a better layout, and who watches that.
struct Seek {
  bool better_layout = true;
  Watch watch;
};
/// A log's text; `name` is its name in errors. Throws UserError.
DiagnosedRun diagnose_log(const KnownPlan& known, const std::string& text, const std::string& name,
                          const Seek& seek);
/// One figure with its unit (measurement.h).
DiagnosedRun diagnose_figure(const KnownPlan& known, const std::string& figure, const std::string& name,
                             const Seek& seek);

std::string diagnosis_json_text(const Plan& plan, const DiagnosedRun& run);
/// Lines for a terminal.
std::string describe_diagnosis(const Plan& plan, const DiagnosedRun& run);

}  // namespace mpt::planner
