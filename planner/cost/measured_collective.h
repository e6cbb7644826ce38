// SPDX-License-Identifier: Apache-2.0
#pragma once

// Collectives that a user timed on several hosts. They speak for the level of the network that they crossed,
// and for no other.

#include <optional>

#include "planner/cost/collective.h"
#include "profiler/hardware/kernel_tables.h"

namespace mpt::planner {

/// What the nearest collective that was timed over several hosts, and crossed the same level as `group`, took
/// over its formula's time at that size. A ring that was not timed takes the ratio of another ring, since bus
/// bandwidth is what a link carries (nccl-tests, doc/PERFORMANCE.md). An all-to-all takes only its own.
/// Nothing where none was timed.
std::optional<double> measured_over_formula(const profiler::KernelTables& own, models::CollectiveKind kind,
                                            int64_t bytes, const GroupPlace& group,
                                            const ClusterSpec& cluster);

}  // namespace mpt::planner
