// SPDX-License-Identifier: Apache-2.0
#pragma once

// Measured figures of a run from the user, and their comparison with its prediction.

#include <optional>
#include <string>
#include <vector>

#include "core/plan_request.h"
#include "planner/api.h"

namespace mpt::planner {

/// Figures of a run; missing ones are absent.
struct MeasuredFigures {
  std::optional<double> seconds;
  std::optional<int64_t> bytes;
  bool out_of_memory = false;
};
/// "28.1s,61GiB", "380TFLOP/s" (all forms of parse_measurement()), "61GiB" or "oom"; or a log that diagnose
/// reads. Throws UserError that names `where`. `plan`: of the layout that ran.
MeasuredFigures parse_figures(const std::string& text, const std::string& where, const Plan& plan);

/// Figures as parse_figures reads them, without files: "28.1s,61GiB" or "oom".
std::string figures_text(const MeasuredFigures& figures);

/// "LAYOUT=FIGURES", a file of such lines or of rows of a tune journal (# begins a comment), or a log of the
/// plan in `request_file`. Throws UserError that names `option` or the file's line.
std::vector<ObservedRun> read_observed(const std::string& word, const std::string& option,
                                       const std::string& request_file);

/// A run, and the prediction of its layout under the run's batch, length, cluster and model.
struct Observation {
  ObservedRun run;  // complete: with the layout itself and all settings of the run
  MeasuredFigures measured;
  Estimated predicted;
};
/// Removes the runs on other devices or links, and of other software: they are no evidence here. Returns a
/// sentence with their number; empty if there are none.
std::string drop_unlike_runs(Resolved& resolved);
/// `known`: layouts that a search found; one may have the run's short form. Throws UserError, also for a run
/// on other devices or links, and of other software.
Observation observation_of(const ObservedRun& run, const Resolved& resolved,
                           const std::vector<Candidate>& known);

}  // namespace mpt::planner
