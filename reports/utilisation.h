// SPDX-License-Identifier: Apache-2.0
#pragma once

// How well a step uses its devices: their peak rate, their memory, and the time of their compute streams.

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/plan.h"

namespace mpt::reports {

double peak_flop_per_s(const DeviceSpec& device, Precision precision);
/// The word for one device: "GPU", or "rank" on CPUs.
const char* device_word(const ClusterSpec& cluster);
/// "32 x h100-sxm-80gb", "16 x a100-sxm-80gb + 16 x h100-sxm-80gb".
std::string devices_text(const Plan& plan);
/// Summed over all ranks, at the plan's precision.
double peak_flop_per_s(const Plan& plan);

/// Model FLOP/s utilisation (Chowdhery et al. 2022, arXiv:2204.02311, appendix B): FLOP of the model, without
/// recompute, relative to the devices' peak at the plan's precision, for steps of `step_time_s`.
double model_flop_utilisation(const Plan& plan, double step_time_s);
double model_flop_utilisation(const Plan& plan);  // as predicted
/// A part of the step on the GPUs' average. `idle`: the GPU waits and computes nothing.
struct TimePart {
  std::string what;
  double seconds = 0.0;
  bool idle = false;
  std::optional<CommunicationKind> inside = std::nullopt;  // of communication during compute
};
/// The parts of the predicted step. They add up to the step. The idle ones add up to bubble_share of it, and
/// every text calls that sum idle.
std::vector<TimePart> time_parts(const Plan& plan);
/// "compute 89.0%, tensor-parallel traffic 5.7%, idle 5.3% (pipeline fill 2.7%, ...)": without parts that
/// print as 0.
std::string describe_time_parts(const Plan& plan);

/// Predicted memory of the fullest rank.
int64_t peak_bytes(const Plan& plan);
/// "470 TFLOP/s, MFU 47.6% (recompute not counted)" of one device; without MFU if the peak is unknown.
std::string describe_utilisation(const Plan& plan);

/// The shares of the compute streams' time in collectives, averaged over ranks, by CommunicationKind up to
/// sharding. `durations_s` are the plan's, by instruction.
std::array<double, 4> inside_shares(const Plan& plan, const StepProgram& program,
                                    const std::vector<double>& durations_s);

}  // namespace mpt::reports
