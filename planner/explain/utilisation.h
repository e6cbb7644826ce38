// SPDX-License-Identifier: Apache-2.0
#pragma once

// Value of a plan: the share of the devices' peak that it uses, and the cost of a whole training.

#include <string>

#include "core/plan.h"
#include "reports/utilisation.h"

namespace mpt::planner {

using reports::model_flop_utilisation;

/// The plan with step, rate, range and memory corrected by observed runs, for its layout and the ranking. The
/// parts of both change in proportion.
Plan as_observed(Plan plan);
/// The corrected time of a layout like the plan's: it has the same error.
double as_observed(const Plan& plan, double predicted_s);

/// Cost of training on `tokens`, at `price` per device and hour.
struct TrainingCost {
  double days = 0.0, device_hours = 0.0, price = 0.0;
};
/// `goodput`: the share of the time spent on steps that count; the rest is
/// failures, saving and evaluation.
TrainingCost training_cost(int64_t ranks, double tokens_per_s, double tokens, double price_per_device_hour,
                           double goodput = 1.0);
TrainingCost training_cost(const Plan& plan, double tokens, double price_per_device_hour,
                           double goodput = 1.0);

/// "84.1 (76.2 to 104.0)": days, hours or money of steps that take `step_s`, and those of the range that
/// contains eight in ten steps. Without the range if no run supports one.
std::string with_range(double value, double step_s, const Confidence& confidence,
                       std::string (*in_words)(double));
/// Days with one decimal.
std::string format_days(double days);

}  // namespace mpt::planner
