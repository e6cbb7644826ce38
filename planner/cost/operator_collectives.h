// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tensor-, context- and expert-parallel collectives beside one operator, and how much of them its compute
// does not hide.

#include <string>
#include <vector>

#include "core/plan.h"
#include "planner/cost/cost_source.h"

namespace mpt::planner {

struct CollectiveCost {
  models::Collective collective;
  CommunicationKind kind = CommunicationKind::tensor;
  int64_t ranks = 1;
  double seconds = 0.0;
  double apart_s = 0.0;    // of them, with no compute beside
  double exposed_s = 0.0;  // that the operator takes longer for it
  double away_s = 0.0;     // beside another micro-batch
};

/// "all-gather 32 MiB x8".
std::string collective_name(const CollectiveCost& cost);

/// The compute that the collectives of one operator run beside.
struct ComputeBeside {
  double share = 1.0;  // of the operator's compute
  double lost = 0.0;   // of the time beside it, what compute loses
};

/// Writes the cost of each of `collectives`, which `op` has in `phase`, to `costs`. Those of a backward are
/// divided between its input gradient and, where `whole` says that it follows at once, its weight gradient,
/// beside which some of them run.
ComputeBeside price_collectives(const models::Collectives& collectives, const models::Operator& op,
                                const Layout& layout, profiler::Phase phase, bool whole,
                                const CostSource& source, std::vector<CollectiveCost>& costs);

/// Of the `exchange_s` of a piece's forward and backward, the share by which they lengthen it, where each
/// runs beside another micro-batch's other pass.
double exchange_exposed(double exchange_s, const PieceSeconds& piece, const Layout& layout,
                        const CostSource& source);

/// Whether a backward's collectives cost the same, weight gradients at once or apart.
bool backward_collectives_alike(const Layout& layout);

}  // namespace mpt::planner
