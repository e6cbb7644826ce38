// SPDX-License-Identifier: Apache-2.0
#pragma once

// The next measurement to explain time that no log explains.

#include <string>
#include <vector>

#include "planner/diagnose/run_log.h"

namespace mpt::planner {

/// Sentences, the cheapest measurement first: the framework's timers, the kernels of one GPU, and nccl-tests
/// at the size of the messages that the plan expects to cost most.
std::vector<std::string> next_measurements(const Plan& plan, const MeasuredRun& run);

}  // namespace mpt::planner
