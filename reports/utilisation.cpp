// SPDX-License-Identifier: Apache-2.0
#include "reports/utilisation.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/quantity.h"

namespace mpt::reports {

double peak_flop_per_s(const DeviceSpec& device, Precision precision) {
  return precision == Precision::fp32    ? device.fp32_flop_per_s
         : precision == Precision::nvfp4 ? device.fp4_flop_per_s
         : is_narrow(precision)          ? device.fp8_flop_per_s
                                         : device.bf16_flop_per_s;
}

double peak_flop_per_s(const Plan& plan) {
  const ClusterSpec& cluster = plan.cluster;
  if (!cluster.mixed() || plan.layout.ranks() != cluster.devices)
    return double(plan.layout.ranks()) * peak_flop_per_s(cluster.device, plan.layout.precision);
  double peak = 0.0;
  for (const DeviceGroup& group : cluster.groups)
    peak += double(group.devices) * peak_flop_per_s(group.device, plan.layout.precision);
  return peak;
}

double model_flop_utilisation(const Plan& plan, double step_time_s) {
  const double available = step_time_s * peak_flop_per_s(plan);
  return available > 0.0 ? plan.prediction.model_flop_per_step / available : 0.0;
}

double model_flop_utilisation(const Plan& plan) {
  return model_flop_utilisation(plan, plan.prediction.step_time_s);
}

int64_t peak_bytes(const Plan& plan) {
  int64_t peak = 0;
  for (const RankMemory& m : plan.prediction.memory) peak = std::max(peak, m.peak_bytes);
  return peak;
}

std::string describe_utilisation(const Plan& plan) {
  const double rate =
      plan.prediction.model_flop_per_step / plan.prediction.step_time_s / double(plan.layout.ranks());
  const double utilisation = model_flop_utilisation(plan);
  return format_flop_rate(rate) + " per device" +
         (utilisation > 0.0 ? fmt::format(" ({} of the peak)", format_percent(utilisation)) : "");
}

std::array<double, 4> inside_shares(const Plan& plan, const StepProgram& program,
                                    const std::vector<double>& durations_s) {
  double busy_s = 0.0;
  for (InstructionId id = 0; id < program.size(); ++id) {
    if (program.instructions[size_t(id)].is_compute()) busy_s += durations_s[size_t(id)];
  }
  std::array<double, 4> shares{};
  for (const ExposedCommunication& e : plan.prediction.exposed) {
    if (e.kind <= CommunicationKind::sharding && busy_s > 0.0)
      shares[size_t(e.kind)] = std::min(0.9, e.seconds * double(program.ranks) / busy_s);
  }
  return shares;
}

}  // namespace mpt::reports
