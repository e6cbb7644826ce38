// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/step_cost.h"

#include <algorithm>
#include <limits>

#include "planner/cost/operator_pieces.h"

namespace mpt::planner {
namespace {

using models::Collective;
using models::CollectiveKind;
using profiler::Phase;
using profiler::Piece;

GroupPlace place_of(models::CollectiveGroup group, const Layout& layout) {
  switch (group) {
    case models::CollectiveGroup::tensor:
      return tensor_group(layout);
    case models::CollectiveGroup::context:
      return context_group(layout);
    case models::CollectiveGroup::expert:
      return expert_parallel_group(layout);
    case models::CollectiveGroup::expert_tensor:
      return {layout.expert_split(), layout.expert_split()};
  }
  return {};
}

CommunicationKind kind_of(models::CollectiveGroup group) {
  switch (group) {
    case models::CollectiveGroup::context:
      return CommunicationKind::context;
    case models::CollectiveGroup::expert:
      return CommunicationKind::expert;
    default:
      return CommunicationKind::tensor;
  }
}

// Collectives of one operator and phase, as far as its own compute does not hide them. Products alone are cut
// into pieces. `whole`: where the weight gradient follows at once, a sum runs beside that, too.
InsideCompute collectives_s(const std::vector<Collective>& collectives, const models::Operator& op,
                            const Layout& layout, Phase phase, bool whole, const CostSource& source) {
  InsideCompute sum, beside;
  const double compute_s = source.operator_s(op.shape, phase), ranks = double(layout.tensor);
  const bool product = op.shape.kind == models::OperatorKind::linear;
  double hidden_by = compute_s;
  for (const Collective& c : collectives) {
    double seconds = source.collective_s(c.kind, c.bytes, place_of(c.group, layout));
    const bool pipelined = layout.overlap_tensor && product && c.group == models::CollectiveGroup::tensor;
    // Cut into one piece per rank, all but the first piece run beside the product of the one before.
    if (pipelined && !c.beside) hidden_by = compute_s * (ranks - 1.0) / ranks;
    if (pipelined && c.kind == CollectiveKind::all_reduce && !whole) {
      // A rank's own rows are scattered last, which no rank waits for; of an all-reduce every piece is waited
      // for, the last with nothing beside it.
      sum[kind_of(c.group)] += seconds / ranks;
      seconds -= seconds / ranks;
    }
    (c.beside || pipelined ? beside : sum)[kind_of(c.group)] += seconds;
  }
  const double all_beside = beside.total();
  if (all_beside > 0.0) {
    const double share = layout.overlap_tensor ? source.pipelined_overlap_share() : kOverlapShare;
    sum.add(beside, exposed_s(all_beside, hidden_by, share) / all_beside);
  }
  return sum;
}

// A piece under every recompute, by Recompute. A recomputed operator's collectives happen again, too.
std::array<PieceCost, 3> price_piece(const models::LayerProgram& program, Piece piece, const Layout& layout,
                                     const CostSource& source) {
  const std::array<PieceSeconds, 3> seconds = source.pieces_s(piece, layout, program);
  std::array<PieceCost, 3> costs;
  for (size_t i = 0; i < program.operators.size(); ++i) {
    const models::Operator& op = program.operators[i];
    if (op.forward_collectives.empty() && op.backward_collectives.empty()) continue;
    const InsideCompute forward =
        collectives_s(op.forward_collectives, op, layout, Phase::forward, false, source);
    const InsideCompute backward =
        collectives_s(op.backward_collectives, op, layout, Phase::input_gradient, true, source);
    const bool alike = !layout.overlap_tensor || layout.sequence_parallel;
    const InsideCompute apart =
        alike ? backward
              : collectives_s(op.backward_collectives, op, layout, Phase::input_gradient, false, source);
    for (const auto& [recompute, name] : EnumNames<Recompute>::table()) {
      PieceCost& cost = costs[size_t(recompute)];
      const double again = piece == Piece::layer ? recomputed_share(program, i, recompute) : 0.0;
      cost.forward_collective.add(forward, 1.0);
      cost.backward_collective.add(backward, 1.0);
      cost.input_gradient_collective.add(apart, 1.0);
      if (again <= 0.0) continue;
      cost.backward_collective.add(forward, again);
      cost.input_gradient_collective.add(forward, again);
    }
  }
  for (size_t r = 0; r < costs.size(); ++r) {
    PieceCost& cost = costs[r];
    cost.forward_s = seconds[r].forward_s + cost.forward_collective.total();
    cost.backward_s = seconds[r].backward_s + cost.backward_collective.total();
    cost.input_gradient_s = seconds[r].input_gradient_s + cost.input_gradient_collective.total();
    cost.weight_gradient_s = seconds[r].weight_gradient_s;
  }
  return costs;
}

}  // namespace

double exposed_s(double communication_s, double beside_s, double share) {
  const double hidden = std::min(communication_s, beside_s);
  return communication_s - hidden + share * hidden;
}

void PieceCost::add(const PieceCost& other, double times) {
  forward_s += times * other.forward_s;
  backward_s += times * other.backward_s;
  input_gradient_s += times * other.input_gradient_s;
  weight_gradient_s += times * other.weight_gradient_s;
  forward_collective.add(other.forward_collective, times);
  backward_collective.add(other.backward_collective, times);
  input_gradient_collective.add(other.input_gradient_collective, times);
}

PieceCosts::PieceCosts(models::PiecePrograms& programs, const CostSource& source, const PieceCosts* alike)
    : model_(programs.model()), kinds_(programs.kinds()) {
  const auto price = [&](const models::LayerProgram& program, Piece piece) {
    return price_piece(program, piece, programs.layout(), source);
  };
  embedding_ = alike != nullptr ? alike->embedding_ : price(programs.embedding(), Piece::embedding)[0];
  // The layers behind the head may have experts.
  head_ = alike != nullptr && model_.next_token_layers == 0 ? alike->head_
                                                            : price(programs.last_stage(), Piece::head)[0];
  for (size_t kind = 0; kind < models::LayerKinds::kCount; ++kind) {
    if (kinds_->all()[kind] == 0) continue;
    layers_[kind] = alike != nullptr && !models::LayerKinds::has_experts(kind)
                        ? alike->layers_[kind]
                        : price(programs.layer(kind), Piece::layer);
  }
}

double PieceCosts::layer_round_trip_s(int64_t layer, Recompute recompute) const {
  const PieceCost& cost = layers_[models::LayerKinds::of(model_, layer)][size_t(recompute)];
  return cost.forward_s + cost.backward_s;
}

double PieceCosts::least_layer_forward_s() const {
  double least = std::numeric_limits<double>::infinity();
  for (size_t k = 0; k < models::LayerKinds::kCount; ++k) {
    if (kinds_->all()[k] == 0) continue;
    for (const PieceCost& cost : layers_[k]) least = std::min(least, cost.forward_s);
  }
  return least;
}

StageKind PieceCosts::kind(const StageContent& content, int64_t recomputed) const {
  StageKind stage;
  const int64_t end_of_recomputed = content.first_layer + recomputed;
  const models::LayerKinds::Counts& first = kinds_->below(content.first_layer);
  const models::LayerKinds::Counts& middle = kinds_->below(end_of_recomputed);
  const models::LayerKinds::Counts& end = kinds_->below(content.first_layer + content.layer_count);
  for (size_t k = 0; k < models::LayerKinds::kCount; ++k) {
    stage.layers[k] = end[k] - first[k];
    stage.recomputed[k] = middle[k] - first[k];
  }
  stage.embedding = content.has_embedding;
  stage.head = content.has_head;
  return stage;
}

PieceCost PieceCosts::stage(const StageKind& kind, Recompute recompute) const {
  PieceCost sum;
  for (size_t k = 0; k < models::LayerKinds::kCount; ++k) {
    const int32_t again = recompute == Recompute::none        ? 0
                          : recompute == Recompute::selective ? kind.layers[k]
                                                              : kind.recomputed[k];
    const int32_t kept = kind.layers[k] - again;
    if (kept > 0) sum.add(layers_[k][size_t(Recompute::none)], double(kept));
    if (again > 0) sum.add(layers_[k][size_t(recompute)], double(again));
  }
  if (kind.embedding) sum.add(embedding_, 1.0);
  if (kind.head) sum.add(head_, 1.0);
  return sum;
}

void StepCost::durations(const StepProgram& program, std::vector<double>& into) const {
  into.clear();
  into.reserve(program.instructions.size());
  for (const Instruction& i : program.instructions) into.push_back(of(i));
}

std::vector<double> StepCost::durations(const StepProgram& program) const {
  std::vector<double> durations;
  this->durations(program, durations);
  return durations;
}

std::vector<InstructionDuration> StepCost::table() const {
  std::vector<InstructionDuration> entries;
  for (size_t s = 0; s < stages.size(); ++s) {
    for (const auto& [kind, name] : EnumNames<InstructionKind>::table()) {
      if (kind != InstructionKind::reduce_norm) entries.push_back({kind, int64_t(s), stages[s].of(kind)});
    }
  }
  entries.push_back({InstructionKind::reduce_norm, -1, reduce_norm_s});
  return entries;
}

}  // namespace mpt::planner
