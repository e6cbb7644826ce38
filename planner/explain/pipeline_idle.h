// SPDX-License-Identifier: Apache-2.0
#pragma once

// Why the ranks of a pipeline are idle: the same program is simulated without communication, and once more
// with stages that all take equally long. No formula of a schedule is in it.

#include <optional>
#include <span>

#include "core/plan.h"
#include "planner/search/search.h"
#include "planner/simulate/simulator.h"

namespace mpt::planner {

/// `durations_s`: of the program's instructions, which take `step_s` with an idle share of `idle_share`.
PipelineIdle pipeline_idle(const StepProgram& program, std::span<const double> durations_s,
                           const Contention& contention, double step_s, double idle_share);
/// Nothing where there is no pipeline.
std::optional<PipelineIdle> pipeline_idle(const SearchProblem& problem, const Candidate& candidate);

}  // namespace mpt::planner
