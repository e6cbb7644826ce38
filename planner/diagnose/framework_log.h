// SPDX-License-Identifier: Apache-2.0
#pragma once

// The log of a training framework as a MeasuredRun, held against the plan that it is said to be a run of.

#include <string>

#include "planner/diagnose/run_log.h"

namespace mpt::planner {

/// Throws UserError that names `file`: for a log that no reader knows, and for one whose batch, sequence
/// length or number of GPUs are not the plan's.
MeasuredRun read_framework_log(const std::string& text, const std::string& file, const Plan& plan);

}  // namespace mpt::planner
