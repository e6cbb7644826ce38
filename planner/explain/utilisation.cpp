// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/utilisation.h"

namespace mpt::planner {

double model_flop_utilisation(const Plan& plan) {
  const DeviceSpec& device = plan.cluster.device;
  const double peak = plan.layout.precision == Precision::fp32  ? device.fp32_flop_per_s
                      : plan.layout.precision == Precision::fp8 ? device.fp8_flop_per_s
                                                                : device.bf16_flop_per_s;
  const double available = plan.prediction.step_time_s * double(plan.layout.ranks()) * peak;
  return available > 0.0 ? plan.prediction.model_flop_per_step / available : 0.0;
}

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
