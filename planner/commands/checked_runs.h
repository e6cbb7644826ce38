// SPDX-License-Identifier: Apache-2.0
#pragma once

// Published runs with their predictions, and what these are worth: for mpt-plan validate.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/validate/published_run.h"
#include "planner/validate/statistics.h"

namespace mpt::planner {

struct Checked {  // NOLINT(bugprone-exception-escape): moving JSON throws nothing
  PublishedRun run;
  std::optional<RunPrediction> prediction;
  std::string skipped;  // why there is none

  std::optional<double> measured_s() const {
    return run.unmodelled.seconds.empty() ? run.observed.seconds : std::nullopt;
  }
  std::optional<double> measured_gib() const {
    return run.unmodelled.gib.empty() ? run.observed.gib : std::nullopt;
  }
  std::optional<double> time_error() const {
    if (!prediction || !measured_s() || is_range()) return std::nullopt;
    return prediction->step_s / *measured_s() - 1.0;
  }
  std::optional<double> memory_error() const {
    if (!prediction || !measured_gib() || is_range()) return std::nullopt;
    return prediction->peak_gib / *measured_gib() - 1.0;
  }
  bool is_failure() const { return prediction && run.observed.out_of_memory && run.unmodelled.gib.empty(); }
  /// The source leaves fields of the layout open, and they matter.
  bool is_range() const { return prediction && prediction->least_s < prediction->most_s; }
};
Checked check_run(const PublishedRun& run, const Calibration& calibration, bool streams);

using Group = std::map<std::string, std::vector<const Checked*>>;

ErrorSummary time_summary(const std::vector<const Checked*>& runs);
ErrorSummary memory_summary(const std::vector<const Checked*>& runs);

/// How far runs of one request lie apart.
Repetition repetition_of(const std::vector<Checked>& all);

/// Runs of one model on one GPU, ten and more: whether the planner would put them in the measured order.
struct RankCorrelation {
  std::string name;
  int runs = 0;
  double of_step_times = 0.0, of_device_seconds_per_token = 0.0;
  double apart = 0.0;               // of step times that are not alike
  std::optional<double> reachable;  // of step times, by predictions without error; where runs were repeated
};
std::vector<RankCorrelation> rank_correlations(const std::vector<Checked>& all);

struct Groups {
  Group all, family, gpu, precision;
};
Groups groups_of(const std::vector<Checked>& all);

/// Runs that failed for lack of memory: whether the planner would have refused their layouts.
struct Failures {
  int64_t runs = 0;
  std::vector<std::string> accepted;
};
Failures failures_of(const std::vector<Checked>& all);

/// Runs with unknown fields: whether the measured time lies within the predicted range.
struct Ranges {
  int64_t runs = 0, within = 0, faster = 0, slower = 0;
  double mean_distance = 0.0;  // from the nearer end, as a share of the measured time
};
Ranges ranges_of(const std::vector<Checked>& all);

/// The report of mpt-plan validate --json, as text.
std::string report_json(const std::vector<Checked>& all);

}  // namespace mpt::planner
