// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where a layout lies: which axis talks over which level of the network, and which stages are on which
// devices.

#include <string>

#include "planner/search/search.h"

namespace mpt::planner {

std::vector<AxisLink> links_of(const ClusterSpec& cluster, const Layout& layout);
/// "nvlink carries tensor-parallel traffic of 8; infiniband carries ...": of each axis, the outermost level
/// that it crosses.
std::string describe_links(const ClusterSpec& cluster, const Layout& layout);

/// Of a mixed cluster: layers and memory of the pipeline ranks of each group.
std::string describe_groups(const SearchProblem& problem, const Candidate& candidate);

}  // namespace mpt::planner
