// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/step_cost.h"

#include "planner/cost/operator_collectives.h"
#include "planner/cost/operator_pieces.h"

namespace mpt::planner {
namespace {

using profiler::Phase;
using profiler::Piece;

// The share of an operator's forward collectives that its backward repeats: that of its work, unless outputs
// of products are kept and the collectives around them are not
// (findings/torchtitan_selective_recompute_repeats_reduce_scatters.sh), or blocks of a layer are recomputed
// apart, within their collectives (nemo-automodel 0.7.0, activation_checkpointing.py).
double repeated_collectives(const models::LayerProgram& layer, size_t index, Recompute recompute,
                            const Layout& layout) {
  const Kept& kept = layout.execution->kept;
  if (recompute == Recompute::selective && kept.keeps_every_second_product) return 1.0;
  if (recompute == Recompute::full && kept.full_recompute_inputs > 1) return 0.0;
  return recomputed_share(layer, index, recompute);
}

// A piece under every recompute, by Recompute. A recomputed operator's collectives are also repeated.
std::array<PieceCost, 3> price_piece(const models::LayerProgram& program, Piece piece, const Layout& layout,
                                     const CostSource& source) {
  const std::array<PieceSeconds, 3> seconds = source.pieces_s(piece, layout, program);
  const std::array<PieceSeconds, 3> launching = source.launching_s(piece, program);
  std::array<PieceCost, 3> costs;
  std::vector<CollectiveCost> collective_costs;
  const auto offloaded_bytes = sum_of<int64_t>(program.operators, &models::Operator::offloaded_bytes);
  for (size_t i = 0; i < program.operators.size(); ++i) {
    const models::Operator& op = program.operators[i];
    if (op.forward_collectives.empty() && op.backward_collectives.empty()) continue;
    const auto exposed = [&](const models::Collectives& collectives, Phase phase, bool whole) {
      price_collectives(collectives, op, layout, phase, whole, source, collective_costs);
      InsideCompute sum;
      for (const CollectiveCost& c : collective_costs) sum[c.kind] += c.exposed_s;
      return sum;
    };
    const InsideCompute forward = exposed(op.forward_collectives, Phase::forward, false);
    InsideCompute backward = exposed(op.backward_collectives, Phase::input_gradient, true);
    backward.add(exposed(op.backward_collectives, Phase::weight_gradient, true), 1.0);
    const InsideCompute apart = backward_collectives_alike(layout)
                                    ? backward
                                    : exposed(op.backward_collectives, Phase::input_gradient, false);
    for (const auto& [recompute, name] : EnumNames<Recompute>::table()) {
      PieceCost& cost = costs[size_t(recompute)];
      const double again = piece == Piece::layer ? repeated_collectives(program, i, recompute, layout) : 0.0;
      cost.forward_collective.add(forward, 1.0);
      cost.backward_collective.add(backward, 1.0);
      cost.input_gradient_collective.add(apart, 1.0);
      if (again <= 0.0) continue;
      cost.backward_collective.add(forward, again);
      cost.input_gradient_collective.add(forward, again);
    }
  }
  for (const auto& [recompute, name] : EnumNames<Recompute>::table()) {
    const auto r = size_t(recompute);
    PieceCost& cost = costs[r];
    const PieceSeconds &device = seconds[r], &host = launching[r];
    if (layout.overlaps_exchange(recompute)) {
      double& forward = cost.forward_collective[CommunicationKind::expert];
      double& backward = cost.backward_collective[CommunicationKind::expert];
      const double share = exchange_exposed(forward + backward, device, layout, source);
      forward *= share;
      backward *= share;
      cost.input_gradient_collective[CommunicationKind::expert] *= share;
    }
    cost.forward_s = std::max(device.forward_s + cost.forward_collective.total(), host.forward_s);
    cost.backward_s = std::max(device.backward_s + cost.backward_collective.total(), host.backward_s);
    cost.input_gradient_s =
        std::max(device.input_gradient_s + cost.input_gradient_collective.total(), host.input_gradient_s);
    cost.weight_gradient_s = std::max(device.weight_gradient_s, host.weight_gradient_s);
    if (recompute == Recompute::full || offloaded_bytes == 0) continue;
    // Copies to host memory and back overlap the layer's work.
    const double copy_s = source.host_copy_s(offloaded_bytes);
    cost.forward_s = std::max(cost.forward_s, copy_s);
    cost.backward_s = std::max(cost.backward_s, copy_s);
    cost.input_gradient_s = std::max(cost.input_gradient_s, copy_s);
  }
  return costs;
}

}  // namespace

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
  // The layers after the head may have experts.
  head_ = alike != nullptr && model_.next_token_layers == 0 ? alike->head_
                                                            : price(programs.last_stage(), Piece::head)[0];
  for (size_t kind = 0; kind < kinds_->size(); ++kind)
    layers_.push_back(alike != nullptr && !kinds_->has_experts(kind)
                          ? alike->layers_[kind]
                          : price(programs.layer(kind), Piece::layer));
  if (alike != nullptr) without_experts_s_ = alike->without_experts_s_;
  for (size_t kind = 0; alike == nullptr && kind < kinds_->size(); ++kind) {
    LayerKind without = kinds_->kind(kind);
    without.moe.reset();
    if (!without.has_mixer() && !without.has_mlp())  // nothing is left
      without_experts_s_.push_back(0.0);
    else if (!kinds_->has_experts(kind))
      without_experts_s_.push_back(layer_least_s(kind));
    else
      without_experts_s_.push_back(least_s(price(
          models::layer_program(model_, without, programs.layout(), programs.sequence()), Piece::layer)));
  }
}

double PieceCosts::layer_round_trip_s(int64_t layer, Recompute recompute) const {
  const PieceCost& cost = layers_[kinds_->of(layer)][size_t(recompute)];
  return cost.forward_s + cost.backward_s;
}

double PieceCosts::least_layer_forward_s() const {
  double least = std::numeric_limits<double>::infinity();
  for (const std::array<PieceCost, 3>& kind : layers_)
    for (const PieceCost& cost : kind) least = std::min(least, cost.forward_s);
  return least;
}

StageKind PieceCosts::kind(const StageContent& content, int64_t recomputed) const {
  StageKind stage;
  stage.layers = kinds_->count(content.first_layer, content.first_layer + content.layer_count);
  stage.recomputed = kinds_->count(content.first_layer, content.first_layer + recomputed);
  stage.embedding = content.has_embedding;
  stage.head = content.has_head;
  return stage;
}

PieceCost PieceCosts::stage(const StageKind& kind, Recompute recompute) const {
  PieceCost sum;
  for (size_t k = 0; k < layers_.size(); ++k) {
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
  for (size_t s = 0; s < stages.size(); ++s)
    for (const auto& [kind, name] : EnumNames<InstructionKind>::table())
      if (kind != InstructionKind::reduce_norm) entries.push_back({kind, int64_t(s), stages[s].of(kind)});
  entries.push_back({InstructionKind::reduce_norm, -1, reduce_norm_s});
  return entries;
}

}  // namespace mpt::planner
