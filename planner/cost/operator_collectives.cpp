// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/operator_collectives.h"

#include "base/quantity.h"

namespace mpt::planner {
namespace {

using models::Collective;
using models::CollectiveGroup;
using models::CollectiveKind;

GroupPlace place_of(CollectiveGroup group, const Layout& layout) {
  return group == CollectiveGroup::tensor    ? tensor_group(layout)
         : group == CollectiveGroup::context ? context_group(layout)
         : group == CollectiveGroup::expert  ? expert_parallel_group(layout)
                                             : GroupPlace{layout.expert_split(), layout.expert_split()};
}

CommunicationKind traffic_of(CollectiveGroup group) {
  return group == CollectiveGroup::context  ? CommunicationKind::context
         : group == CollectiveGroup::expert ? CommunicationKind::expert
                                            : CommunicationKind::tensor;
}

}  // namespace

double exposed_s(double communication_s, double beside_s, double share) {
  const double hidden = std::min(communication_s, beside_s);
  return communication_s - hidden + share * hidden;
}

std::string collective_name(const CollectiveCost& cost) {
  return fmt::format("{} {} x{}", replaced(enum_name(cost.collective.kind), '_', '-'),
                     format_bytes(double(cost.collective.bytes)), cost.ranks);
}

ComputeBeside price_collectives(const models::Collectives& collectives, const models::Operator& op,
                                const Layout& layout, profiler::Phase phase, bool whole,
                                const CostSource& source, std::vector<CollectiveCost>& costs) {
  costs.clear();
  const auto ranks = double(layout.tensor);
  const bool product = op.shape.kind == models::OperatorKind::linear;  // only these are cut into pieces
  const bool in_pieces = layout.overlap_tensor && product, weight = phase == profiler::Phase::weight_gradient;
  ComputeBeside beside{1.0, layout.overlap_tensor ? source.pipelined_overlap_share()
                                                  : source.constants().collective_overlap_share};
  double all_beside = 0.0;
  for (const Collective& c : collectives) {
    if ((c.beside_weight && whole && !in_pieces) != weight) continue;
    const GroupPlace place = place_of(c.group, layout);
    const double seconds = c.route.copies > 1 ? source.exchange_s(c.bytes, c.route, place)
                                              : source.collective_s(c.kind, c.bytes, place);
    const bool pipelined = in_pieces && c.group == CollectiveGroup::tensor;
    // Of one piece per rank, all but the first overlap the product of the piece before.
    if (pipelined && !c.beside) beside.share = (ranks - 1.0) / ranks;
    double apart = c.beside || pipelined || weight ? 0.0 : seconds;
    // A rank's rows are scattered last, and no rank waits for them. Of an all-reduce, ranks wait for every
    // piece, and the last piece overlaps nothing.
    if (pipelined && c.kind == CollectiveKind::all_reduce && !whole) apart = seconds / ranks;
    all_beside += seconds - apart;
    costs.push_back({c, traffic_of(c.group), place.ranks, seconds, apart, apart});
  }
  if (all_beside <= 0.0) return beside;
  const double compute_s = beside.share * source.operator_s(op.shape, phase);
  const double exposed = exposed_s(all_beside, compute_s, beside.lost) / all_beside;
  for (CollectiveCost& c : costs) c.exposed_s += (c.seconds - c.apart_s) * exposed;
  return beside;
}

double exchange_exposed(double exchange_s, const PieceSeconds& piece, const Layout& layout,
                        const CostSource& source) {
  if (exchange_s <= 0.0) return 1.0;
  const double lost = source.overlap_share(expert_parallel_group(layout));
  return exposed_s(exchange_s, piece.forward_s + piece.backward_s, lost) / exchange_s;
}

bool backward_collectives_alike(const Layout& layout) {
  if (layout.overlap_tensor) return layout.sequence_parallel;
  return !layout.execution->traffic.sums_beside_weight_gradient;
}

}  // namespace mpt::planner
