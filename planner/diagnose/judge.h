// SPDX-License-Identifier: Apache-2.0
#pragma once

// One measured figure of a run, converted to a step time. Work per second depends on the way of counting, so
// the ways are here, too. The figure is then judged: compared with the prediction and with published runs,
// and with the way of counting that explains it better.

#include <optional>
#include <string>
#include <vector>

#include "core/plan.h"
#include "planner/explain/confidence.h"

namespace mpt::planner {

struct Measurement {
  std::string said;           // for people: "380 TFLOP/s per GPU"
  double step_time_s = 0.0;   // of the plan's batch; from work per second, if only the model's work counts
  double flop_per_s = 0.0;    // of one GPU, if that was measured
  double tokens_per_s = 0.0;  // of all GPUs, if that was measured
};

/// "18.7s", "380TFLOP/s" (of one GPU), "56000tokens/s" (of all GPUs), "7000tokens/s/GPU", "MFU 41%" or "HFU
/// 50%", which counts recompute. Throws UserError that names `where`; also for a step that is faster than the
/// plan's GPUs at their peak, and for the rate of one GPU given as that of all.
Measurement parse_measurement(const std::string& text, const std::string& where, const Plan& plan);
/// Throws the same error for the step of a log, with the likely mistake.
void check_possible(const Measurement& measured, const std::string& where, const Plan& plan);
/// A sentence if a log's rate means more or less work in a step than the plan has, by any way of counting.
/// The log is then of another model, length or batch. Empty otherwise.
std::string describe_other_work(const Plan& plan, double flop_per_s, double step_time_s);

/// Work that a counter of floating-point operations may include in addition to the model's work. The model's
/// causal attention is half of a square.
struct Counting {
  bool recompute = false, whole_squares = false;
};
/// FLOP of a step.
double counted_flop(const Plan& plan, Counting counting);

/// A measured time that differs by this share from the predicted one needs an explanation.
inline constexpr double kWorthExplaining = 0.05;

/// The range of published runs; nothing if there are none (confidence.h).
std::optional<StepRange> published_range(const Plan& plan, const std::vector<Evidence>& published);
/// "By published runs, 8 of 10 steps take 0.92 to 1.19 times the predicted time."
std::string describe_range(const StepRange& range);

/// One statement per line, the verdict first.
std::vector<std::string> judge(const Plan& plan, const Measurement& measured,
                               const std::vector<Evidence>& published);

/// A sentence that compares the best layout with a measurement of `plan`; empty without a measurement. Both
/// are corrected by that run.
std::string describe_against_best(const Plan& plan, const Plan& best, const std::string& text);

/// The judgement for a terminal. `text`: as for parse_measurement(); an empty text gives an empty result.
std::string describe_judgement(const Plan& plan, const std::string& text);

}  // namespace mpt::planner
