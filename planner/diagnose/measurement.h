// SPDX-License-Identifier: Apache-2.0
#pragma once

// Measurement: one figure that somebody measured of a run, as a step's time. Work per second means different
// things to different counters, so the ways of counting are here, too.

#include <string>

#include "core/plan.h"

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

}  // namespace mpt::planner
