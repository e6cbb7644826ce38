// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a step uses of its devices: their peak, their memory, and their compute streams' time.

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/plan.h"

namespace mpt::reports {

double peak_flop_per_s(const DeviceSpec& device, Precision precision);
/// What one of them is called: "GPU", or "rank" of a CPU.
const char* device_word(const ClusterSpec& cluster);
/// "32 x h100-sxm-80gb", "16 x a100-sxm-80gb + 16 x h100-sxm-80gb".
std::string devices_text(const Plan& plan);
/// Of all ranks together, at the plan's precision.
double peak_flop_per_s(const Plan& plan);

/// Model FLOP/s utilisation (Chowdhery et al. 2022, arXiv:2204.02311, appendix B): FLOP of the model, without
/// recompute, against the devices' peak at the plan's precision, in steps of `step_time_s`.
double model_flop_utilisation(const Plan& plan, double step_time_s);
double model_flop_utilisation(const Plan& plan);  // as predicted
/// A part of the step on the GPUs' average. `idle`: the GPU waits and computes nothing.
struct TimePart {
  std::string what;
  double seconds = 0.0;
  bool idle = false;
  std::optional<CommunicationKind> inside = std::nullopt;  // of communication during compute
};
/// Where the predicted step goes: parts that add up to it. The idle ones add up to bubble_share of it; that
/// sum is what every text calls idle.
std::vector<TimePart> time_parts(const Plan& plan);
/// "compute 89.0%, tensor-parallel traffic 5.7%, idle 5.3% (pipeline fill 2.7%, ...)": without parts that
/// round to nothing.
std::string describe_time_parts(const Plan& plan);

/// Predicted memory of the fullest rank.
int64_t peak_bytes(const Plan& plan);
/// "470 TFLOP/s, MFU 47.6% (recompute not counted)" of one device; no MFU where the peak is unknown.
std::string describe_utilisation(const Plan& plan);

/// Shares of the compute streams' time that collectives inside them have, by CommunicationKind up to
/// sharding, on the ranks' average. `durations_s` are the plan's, by instruction.
std::array<double, 4> inside_shares(const Plan& plan, const StepProgram& program,
                                    const std::vector<double>& durations_s);

}  // namespace mpt::reports
