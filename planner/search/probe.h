// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace mpt::planner {

/// A node that the tiers of the search test (tiers.h), with the results of earlier tiers. Each level of the
/// tree has its own kind.
struct Probe {};

}  // namespace mpt::planner
