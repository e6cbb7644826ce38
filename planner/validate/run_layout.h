// SPDX-License-Identifier: Apache-2.0
#pragma once

// The cluster and the layout that a published run's record describes, and what it leaves open.

#include <string>
#include <vector>

#include "core/cluster_spec.h"
#include "core/layout.h"
#include "planner/validate/run_record.h"

namespace mpt::planner {

/// `filled` gets a line for each thing that the record does not say. Both throw UserError where it describes
/// what the planner does not know.
ClusterSpec cluster_of(const RunRecord& run, std::vector<std::string>& filled);
/// As far as it was published: neither layers of stages nor recompute.
Layout published_layout(const RunRecord& run, std::vector<std::string>& filled);

/// The layouts that the published part leaves possible, the likelier first. `open` gets the names of the
/// fields in which they differ.
std::vector<Layout> possible_layouts(const RunRecord& run, const Layout& published,
                                     std::vector<std::string>& open);

}  // namespace mpt::planner
