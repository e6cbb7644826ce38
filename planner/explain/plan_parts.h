// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a plan tells beside its figures: where a layout lies, that is which axis talks over which level of the
// network and which stages are on which devices; and why the ranks of a pipeline are idle: the same program is
// simulated without communication, and once more with stages that all take equally long.

#include <optional>
#include <span>
#include <string>

#include "core/plan.h"
#include "planner/search/search.h"
#include "planner/simulate/simulator.h"

namespace mpt::planner {

std::vector<AxisLink> links_of(const ClusterSpec& cluster, const Layout& layout);
/// "nvlink carries tensor-parallel traffic of 8; infiniband carries ...": of each axis, the outermost level
/// that it crosses.
std::string describe_links(const ClusterSpec& cluster, const Layout& layout);

/// Of a mixed cluster: layers and memory of the pipeline ranks of each group.
std::string describe_groups(const SearchProblem& problem, const Candidate& candidate);

/// `durations_s`: of the program's instructions, which take `step_s` with an idle share of `idle_share`.
PipelineIdle pipeline_idle(const StepProgram& program, std::span<const double> durations_s,
                           const Contention& contention, double step_s, double idle_share);
/// Nothing where there is no pipeline.
std::optional<PipelineIdle> pipeline_idle(const SearchProblem& problem, const Candidate& candidate);

}  // namespace mpt::planner
