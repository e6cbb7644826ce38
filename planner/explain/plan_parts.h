// SPDX-License-Identifier: Apache-2.0
#pragma once

// Further parts of a plan. Placement: the network level of each axis, and the devices of each stage. Idle
// time of a pipeline: the program is simulated again without communication, and once more with stages that
// all take equally long.

#include <optional>
#include <span>
#include <string>

#include "core/plan.h"
#include "planner/search/search_result.h"
#include "planner/simulate/simulator.h"

namespace mpt::planner {

std::vector<AxisLink> links_of(const ClusterSpec& cluster, const Layout& layout);
/// "nvlink carries tensor-parallel traffic of 8; infiniband carries ...": for each axis, the outermost level
/// that it crosses.
std::string describe_links(const ClusterSpec& cluster, const Layout& layout);

/// For a mixed cluster: layers and memory of the pipeline ranks of each group.
std::string describe_groups(const SearchProblem& problem, const Candidate& candidate);

/// `durations_s`: of the program's instructions; the step takes `step_s` and is idle for `idle_share`.
PipelineIdle pipeline_idle(const StepProgram& program, std::span<const double> durations_s,
                           const Contention& contention, double step_s, double idle_share);
/// Nothing if there is no pipeline.
std::optional<PipelineIdle> pipeline_idle(const SearchProblem& problem, const Candidate& candidate);

}  // namespace mpt::planner
