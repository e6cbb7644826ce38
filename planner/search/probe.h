// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace mpt::planner {

/// What a tier of the search looks at: a node, with what was worked out about it so far (tiers.h). Each level
/// of the tree has its own.
struct Probe {};

}  // namespace mpt::planner
