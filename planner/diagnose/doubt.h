// SPDX-License-Identifier: Apache-2.0
#pragma once

// Whether a run is of its plan at all, judged by its memory. A setting that people omit from a launch line,
// such as recompute, changes memory far more than a prediction errs. Also: the next measurement to explain
// time that no log explains.

#include <string>
#include <vector>

#include "core/plan.h"
#include "planner/diagnose/diagnose.h"

namespace mpt::planner {

/// Why a run that uses `bytes` on its fullest GPU is not the plan, and the change of the plan's layout that
/// would explain it. Empty if published runs have similar errors. `at_least`: it ran out of memory there.
std::string doubt_by_memory(const Plan& plan, double bytes, bool at_least);

/// Sentences, the cheapest measurement first: the framework's timers, the kernels of one GPU, and nccl-tests
/// at the size of the messages that the plan expects to cost most.
std::vector<std::string> next_measurements(const Plan& plan, const MeasuredRun& run);

}  // namespace mpt::planner
