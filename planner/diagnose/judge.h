// SPDX-License-Identifier: Apache-2.0
#pragma once

// One figure that somebody measured of a run, as a step's time: work per second means different things to
// different counters, so the ways of counting are here, too. And its one judge: how it compares with the
// prediction and with published runs, and which way of counting explains it better.

#include <optional>
#include <string>
#include <vector>

#include "core/plan.h"
#include "planner/explain/confidence.h"

namespace mpt::planner {

struct Measurement {
  std::string said;           // for people: "380 TFLOP/s per GPU"
  double step_time_s = 0.0;   // of the plan's batch; from work per second, if that is the model's work alone
  double flop_per_s = 0.0;    // of one GPU, where that was measured
  double tokens_per_s = 0.0;  // of all GPUs, where that was measured
};

/// "18.7s", "380TFLOP/s" (of one GPU), "56000tokens/s" (of all GPUs), "7000tokens/s/GPU", "MFU 41%" or
/// "HFU 50%", which counts recompute. Throws UserError that names `where`, also for a step that is faster
/// than the plan's GPUs at their peak, and for the rate of one GPU that is given as that of all.
Measurement parse_measurement(const std::string& text, const std::string& where, const Plan& plan);
/// Throws that error, which says what is likely wrong, for the step of a log.
void check_possible(const Measurement& measured, const std::string& where, const Plan& plan);
/// A sentence where a log's own rate means more or less work in a step than the plan has, whatever is
/// counted. The log is then of another model, length or batch. Empty otherwise.
std::string describe_other_work(const Plan& plan, double flop_per_s, double step_time_s);

/// What a counter of floating-point operations may count besides the model's own work, in which causal
/// attention is half of a square.
struct Counting {
  bool recompute = false, whole_squares = false;
};
/// Of a step, in FLOP.
double counted_flop(const Plan& plan, Counting counting);

/// A measured time that is this far from the predicted one, as a share, wants an explanation.
inline constexpr double kWorthExplaining = 0.05;

/// Nothing where no published run tells (confidence.h).
std::optional<StepRange> published_range(const Plan& plan, const std::vector<Evidence>& published);
/// "By published runs, 8 of 10 steps take 0.92 to 1.19 times the predicted time."
std::string describe_range(const StepRange& range);

/// One claim a line, the verdict first.
std::vector<std::string> judge(const Plan& plan, const Measurement& measured,
                               const std::vector<Evidence>& published);

/// What the best layout would give beside a measurement of `plan`, a sentence; empty without a measurement.
/// Both as that run corrects them.
std::string describe_against_best(const Plan& plan, const Plan& best, const std::string& text);

/// For a terminal, `text` as parse_measurement() takes it; empty of an empty one.
std::string describe_judgement(const Plan& plan, const std::string& text);

}  // namespace mpt::planner
