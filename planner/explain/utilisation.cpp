// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/utilisation.h"

namespace mpt::planner {

TrainingCost training_cost(const Plan& plan, double tokens, double price_per_device_hour) {
  constexpr double kSecondsPerHour = 3600.0;
  const double hours = tokens / plan.prediction.tokens_per_s / kSecondsPerHour;
  TrainingCost cost;
  cost.days = hours / 24.0;
  cost.device_hours = hours * double(plan.layout.ranks());
  cost.price = cost.device_hours * price_per_device_hour;
  return cost;
}

}  // namespace mpt::planner
