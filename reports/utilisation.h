// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a step uses of its devices: their peak, their memory, and their compute streams' time.

#include <array>
#include <string>
#include <vector>

#include "core/plan.h"

namespace mpt::reports {

double peak_flop_per_s(const DeviceSpec& device, Precision precision);
/// Of all ranks together, at the plan's precision.
double peak_flop_per_s(const Plan& plan);

/// Model FLOP/s utilisation (Chowdhery et al. 2022, arXiv:2204.02311, appendix B): FLOP of the model, without
/// recompute, against the devices' peak at the plan's precision, in steps of `step_time_s`.
double model_flop_utilisation(const Plan& plan, double step_time_s);
double model_flop_utilisation(const Plan& plan);  // as predicted
/// Predicted memory of the fullest rank.
int64_t peak_bytes(const Plan& plan);
/// "470 TFLOP/s per device (47.6% of the peak)", of the model's own work; no percentage where the peak is
/// unknown.
std::string describe_utilisation(const Plan& plan);

/// Shares of the compute streams' time that collectives inside them have, by CommunicationKind up to
/// sharding, on the ranks' average. `durations_s` are the plan's, by instruction.
std::array<double, 4> inside_shares(const Plan& plan, const StepProgram& program,
                                    const std::vector<double>& durations_s);

}  // namespace mpt::reports
