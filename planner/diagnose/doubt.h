// SPDX-License-Identifier: Apache-2.0
#pragma once

// Whether a run is of its plan at all, by the memory that it uses: what people leave out of a launch line,
// such as recompute, changes memory far more than a prediction errs. And which measurement would tell where
// time goes that no log explains.

#include <string>
#include <vector>

#include "core/plan.h"
#include "planner/diagnose/diagnose.h"

namespace mpt::planner {

/// Why a run that uses `bytes` on its fullest GPU is not the plan, and which change of the plan's layout
/// would explain it; empty where published runs are as far off. `at_least`: it ran out of memory there.
std::string doubt_by_memory(const Plan& plan, double bytes, bool at_least);

/// Sentences, the cheapest first: the framework's timers, the kernels of one GPU, and nccl-tests at the size
/// of the messages that the plan expects to cost most.
std::vector<std::string> next_measurements(const Plan& plan, const MeasuredRun& run);

}  // namespace mpt::planner
