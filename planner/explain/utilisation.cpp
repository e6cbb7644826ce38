// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/utilisation.h"

namespace mpt::planner {

TrainingCost training_cost(int64_t ranks, double tokens_per_s, double tokens, double price_per_device_hour,
                           double goodput) {
  constexpr double kSecondsPerHour = 3600.0;
  const double hours = tokens / (tokens_per_s * goodput) / kSecondsPerHour;
  TrainingCost cost;
  cost.days = hours / 24.0;
  cost.device_hours = hours * double(ranks);
  cost.price = cost.device_hours * price_per_device_hour;
  return cost;
}

TrainingCost training_cost(const Plan& plan, double tokens, double price_per_device_hour, double goodput) {
  return training_cost(plan.layout.ranks(), plan.prediction.tokens_per_s, tokens, price_per_device_hour,
                       goodput);
}

}  // namespace mpt::planner
