// SPDX-License-Identifier: Apache-2.0
#pragma once

// A run compared with its plan: the measurements, the planner's judgement, and whether another layout is
// better. mpt-plan diagnose and programs in other languages use it.

#include <string>
#include <vector>

#include "planner/answer/known_plan.h"
#include "planner/api.h"
#include "planner/diagnose/diagnose.h"

namespace mpt::planner {

struct DiagnosedRun {
  MeasuredRun run;  // without a step if the log ends before the first; the rest is then empty
  Diagnosis diagnosis;
  std::vector<std::string> judgement;

  bool has_steps() const { return run.step_time_s > 0.0; }
};

/// Whether to search for a better layout, and a callback that watches the search.
struct Seek {
  bool better_layout = true;
  Watch watch;
};
/// Diagnoses a log's text; `name` is its name in errors. Throws UserError.
DiagnosedRun diagnose_log(const KnownPlan& known, const std::string& text, const std::string& name,
                          const Seek& seek);
/// Diagnoses one figure with its unit (measurement.h).
DiagnosedRun diagnose_figure(const KnownPlan& known, const std::string& figure, const std::string& name,
                             const Seek& seek);

std::string diagnosis_json_text(const Plan& plan, const DiagnosedRun& run);
/// The diagnosis as lines for a terminal.
std::string describe_diagnosis(const Plan& plan, const DiagnosedRun& run);

}  // namespace mpt::planner
