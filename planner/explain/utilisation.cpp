// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/utilisation.h"

namespace mpt::planner {

namespace {

double peak_flop_per_s(const DeviceSpec& device, Precision precision) {
  return precision == Precision::fp32  ? device.fp32_flop_per_s
         : precision == Precision::fp8 ? device.fp8_flop_per_s
                                       : device.bf16_flop_per_s;
}

}  // namespace

double model_flop_utilisation(const Plan& plan) {
  const ClusterSpec& cluster = plan.cluster;
  double peak = double(plan.layout.ranks()) * peak_flop_per_s(cluster.device, plan.layout.precision);
  if (cluster.mixed() && plan.layout.ranks() == cluster.devices) {
    peak = 0.0;
    for (const DeviceGroup& group : cluster.groups)
      peak += double(group.devices) * peak_flop_per_s(group.device, plan.layout.precision);
  }
  const double available = plan.prediction.step_time_s * peak;
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
