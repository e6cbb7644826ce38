// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tensor-, context- and expert-parallel collectives of one operator, and the part of them that its compute
// does not hide.

#include <string>
#include <vector>

#include "core/plan.h"
#include "planner/cost/cost_source.h"

namespace mpt::planner {

/// Seconds that `communication_s` adds to a step if it can overlap compute; the second argument is that
/// compute. The communication slows the compute by `share` of the communication's time.
double exposed_s(double communication_s, double beside_s, double share);

struct CollectiveCost {
  models::Collective collective;
  CommunicationKind kind = CommunicationKind::tensor;
  int64_t ranks = 1;
  double seconds = 0.0;
  double apart_s = 0.0;    // the part that overlaps no compute
  double exposed_s = 0.0;  // the time by which they lengthen the operator
  double away_s = 0.0;     // the part that overlaps another micro-batch
};

/// "all-gather 32 MiB x8".
std::string collective_name(const CollectiveCost& cost);

/// The compute that the collectives of one operator overlap.
struct ComputeBeside {
  double share = 1.0;  // share of the operator's compute
  double lost = 0.0;   // compute time lost, as a share of the overlapping communication
};

/// Writes the cost of each of `collectives`, which `op` has in `phase`, to `costs`. Collectives of a backward
/// are divided between its input gradient and its weight gradient if `whole` says that the latter follows
/// directly. Some then overlap the weight gradient.
ComputeBeside price_collectives(const models::Collectives& collectives, const models::Operator& op,
                                const Layout& layout, profiler::Phase phase, bool whole,
                                const CostSource& source, std::vector<CollectiveCost>& costs);

/// The share of `exchange_s`, of a piece's forward and backward, by which they lengthen it, if each overlaps
/// the other pass of another micro-batch.
double exchange_exposed(double exchange_s, const PieceSeconds& piece, const Layout& layout,
                        const CostSource& source);

/// Whether a backward's collectives cost the same with whole and with split weight gradients.
bool backward_collectives_alike(const Layout& layout);

}  // namespace mpt::planner
