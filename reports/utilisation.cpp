// SPDX-License-Identifier: Apache-2.0
#include "reports/utilisation.h"

#include <fmt/format.h>

#include "base/quantity.h"

namespace mpt::reports {

double peak_flop_per_s(const DeviceSpec& device, Precision precision) {
  return precision == Precision::fp32    ? device.fp32_flop_per_s
         : precision == Precision::nvfp4 ? device.fp4_flop_per_s
         : is_narrow(precision)          ? device.fp8_flop_per_s
                                         : device.bf16_flop_per_s;
}

const char* device_word(const ClusterSpec& cluster) {
  return cluster.device.kind == DeviceKind::cpu ? "rank" : "GPU";
}

std::string devices_text(const Plan& plan) {
  const ClusterSpec& all = plan.cluster;
  std::string text = all.mixed() ? "" : fmt::format("{} x {}", format_count(all.devices), all.device.name);
  for (const DeviceGroup& group : all.groups)
    text +=
        fmt::format("{}{} x {}", text.empty() ? "" : " + ", format_count(group.devices), group.device.name);
  if (const int64_t ranks = plan.layout.ranks(); ranks < all.devices)
    text += fmt::format(" of which {} {} used", format_count(ranks), ranks == 1 ? "is" : "are");
  return text;
}

double peak_flop_per_s(const Plan& plan) {
  const ClusterSpec& cluster = plan.cluster;
  if (!cluster.mixed() || plan.layout.ranks() != cluster.devices)
    return double(plan.layout.ranks()) * peak_flop_per_s(cluster.device, plan.layout.precision);
  return sum_of<double>(cluster.groups, [&](const DeviceGroup& group) {
    return double(group.devices) * peak_flop_per_s(group.device, plan.layout.precision);
  });
}

double model_flop_utilisation(const Plan& plan, double step_time_s) {
  const double available = step_time_s * peak_flop_per_s(plan);
  const double share = available > 0.0 ? plan.prediction.model_flop_per_step / available : 0.0;
  return plan.cluster.device.kind == DeviceKind::cpu && share > 1.0 ? 0.0 : share;
}

double model_flop_utilisation(const Plan& plan) {
  return model_flop_utilisation(plan, plan.prediction.step_time_s);
}

int64_t peak_bytes(const Plan& plan) {
  return max_of<int64_t>(plan.prediction.memory, 0, &RankMemory::peak_bytes);
}

std::string describe_utilisation(const Plan& plan) {
  const double rate =
      plan.prediction.model_flop_per_step / plan.prediction.step_time_s / double(plan.layout.ranks());
  const double utilisation = model_flop_utilisation(plan);
  if (utilisation > 1.0)
    return format_flop_rate(rate) + ", more than the peak of the machine: such times are not possible";
  return format_flop_rate(rate) +
         (utilisation > 0.0 ? fmt::format(", MFU {} (recompute not counted)", format_percent(utilisation))
                            : " (recompute not counted)");
}

namespace {

// By CommunicationKind.
constexpr const char* kTraffic[] = {
#include "generated/TrafficWords.inc"
};

// The remaining waits, after transfers and the step's end. Plans of older versions do not split them.
void add_waits(const Plan& plan, double waits_s, std::vector<TimePart>& parts) {
  const auto& idle = plan.prediction.pipeline_idle;
  const double step_s = plan.prediction.step_time_s;
  if (idle) {
    const double fill_s = std::min(waits_s, idle->fill * step_s);
    const double unequal_s = std::min(waits_s - fill_s, idle->unequal_stages * step_s);
    parts.push_back({"pipeline fill", fill_s, true});
    parts.push_back({"unequal stages", unequal_s, true});
    waits_s -= fill_s + unequal_s;
  }
  const bool bubble = plan.layout.pipeline > 1 && !idle;
  parts.push_back({bubble ? "pipeline bubble" : "other waiting", waits_s, true});
}

}  // namespace

std::vector<TimePart> time_parts(const Plan& plan) {
  const double step_s = plan.prediction.step_time_s, idle_s = step_s * plan.prediction.bubble_share;
  std::vector<TimePart> busy, idle;
  double compute_s = step_s - idle_s, waits_s = idle_s;
  for (const ExposedCommunication& e : plan.prediction.exposed) {
    const bool inside = e.kind <= CommunicationKind::sharding;
    double& left_s = inside ? compute_s : waits_s;
    const double seconds = std::min(e.seconds, std::max(0.0, left_s));
    left_s -= seconds;
    const bool alone = e.kind == CommunicationKind::gradients && !plan.layout.reduces_gradients();
    TimePart part{alone ? "gradient norm" : kTraffic[size_t(e.kind)], seconds, !inside};
    if (inside) part.inside = e.kind;
    (inside ? busy : idle).push_back(std::move(part));
  }
  std::vector<TimePart> parts{{"compute", compute_s, false}};
  parts.insert(parts.end(), busy.begin(), busy.end());
  add_waits(plan, waits_s, parts);
  parts.insert(parts.end(), idle.begin(), idle.end());
  return parts;
}

std::string describe_time_parts(const Plan& plan) {
  constexpr double kNothing = 5e-4;  // prints as 0.0%
  const double step_s = std::max(1e-300, plan.prediction.step_time_s);
  std::string busy, idle;
  for (const TimePart& part : time_parts(plan)) {
    if (part.seconds / step_s < kNothing) continue;
    std::string& text = part.idle ? idle : busy;
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", part.what, format_percent(part.seconds / step_s));
  }
  return fmt::format("{}, idle {}{}", busy, format_percent(plan.prediction.bubble_share),
                     idle.empty() ? "" : " (" + idle + ")");
}

std::array<double, 4> inside_shares(const Plan& plan, const StepProgram& program,
                                    const std::vector<double>& durations_s) {
  double busy_s = 0.0;
  for (InstructionId id = 0; id < program.size(); ++id)
    if (program.instructions[size_t(id)].is_compute()) busy_s += durations_s[size_t(id)];
  std::array<double, 4> shares{};
  for (const ExposedCommunication& e : plan.prediction.exposed)
    if (e.kind <= CommunicationKind::sharding && busy_s > 0.0)
      shares[size_t(e.kind)] = std::min(0.9, e.seconds * double(program.ranks) / busy_s);
  return shares;
}

}  // namespace mpt::reports
