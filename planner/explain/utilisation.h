// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a plan is worth: the share of the devices' peak that it uses, and what a whole training costs with it.

#include <string>

#include "core/plan.h"
#include "reports/utilisation.h"

namespace mpt::planner {

using reports::model_flop_utilisation;

/// With step, rate, range and memory as observed runs correct them, its own and the ranking's; each part of
/// both in proportion.
Plan as_observed(Plan plan);
/// The predicted time of a layout that is like the plan's own: off as much.
double as_observed(const Plan& plan, double predicted_s);

/// What training on `tokens` takes, at `price` per device and hour.
struct TrainingCost {
  double days = 0.0, device_hours = 0.0, price = 0.0;
};
/// `goodput`: the share of the time in which steps are made that count, the rest being failures, saving and
/// evaluation.
TrainingCost training_cost(int64_t ranks, double tokens_per_s, double tokens, double price_per_device_hour,
                           double goodput = 1.0);
TrainingCost training_cost(const Plan& plan, double tokens, double price_per_device_hour,
                           double goodput = 1.0);

/// "84.1 (76.2 to 104.0)": days, hours or money of steps that take `step_s`, and those of the range in which
/// eight in ten steps lie. Without the range where no run tells it.
std::string with_range(double value, double step_s, const Confidence& confidence,
                       std::string (*in_words)(double));
/// With one decimal.
std::string format_days(double days);

}  // namespace mpt::planner
