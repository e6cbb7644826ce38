// SPDX-License-Identifier: Apache-2.0
#pragma once

// What people say of a run, and what it shows beside its prediction.

#include <optional>
#include <string>
#include <vector>

#include "core/plan_request.h"
#include "planner/api.h"

namespace mpt::planner {

/// A figure of a run; what it does not say is absent.
struct MeasuredFigures {
  std::optional<double> seconds;
  std::optional<int64_t> bytes;
  bool out_of_memory = false;
};
/// "28.1s,61GiB", "380TFLOP/s" (all that parse_measurement takes), "61GiB" or "oom"; or a log that diagnose
/// reads. Throws UserError that names `where`. `plan`: of the layout that ran.
MeasuredFigures parse_figures(const std::string& text, const std::string& where, const Plan& plan);

/// Figures as parse_figures reads them, without files: "28.1s,61GiB" or "oom".
std::string figures_text(const MeasuredFigures& figures);

/// "LAYOUT=FIGURES", a file with such a line each (# begins a comment), or a log of the plan that
/// `request_file` is. Throws UserError that names `option` or the file's line.
std::vector<ObservedRun> read_observed(const std::string& word, const std::string& option,
                                       const std::string& request_file);

/// A run beside the prediction of its layout under its own batch, length, cluster and model.
struct Observation {
  ObservedRun run;  // complete: with the layout itself and all that it ran under
  MeasuredFigures measured;
  Estimated predicted;
};
/// Takes out the runs on other devices or links, and by other software: they tell nothing here. A sentence of
/// how many those are; empty where there are none.
std::string drop_unlike_runs(Resolved& resolved);
/// `known`: layouts that a search found, of which one may have the run's short form. Throws UserError, also
/// for a run on other devices or links, and by other software.
Observation observation_of(const ObservedRun& run, const Resolved& resolved,
                           const std::vector<Candidate>& known);

}  // namespace mpt::planner
