// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/operator_times.h"

#include "planner/cost/operator_pieces.h"

namespace mpt::planner {
namespace {

using models::OperatorKind;
using profiler::Phase;
using profiler::Piece;

OperatorTime time_of(const models::LayerProgram& program, size_t index, Piece piece, const Layout& layout,
                     const CostSource& source) {
  const models::Operator& op = program.operators[index];
  OperatorTime time;
  time.name = op.name;
  time.kind = op.shape.kind;
  time.forward_s = source.operator_s(op.shape, Phase::forward);
  time.input_gradient_s = source.operator_s(op.shape, Phase::input_gradient);
  time.weight_gradient_s = op.shape.frozen ? 0.0 : source.operator_s(op.shape, Phase::weight_gradient);
  if (piece == Piece::layer) time.again = recomputed_share(program, index, layout.recompute);
  const OperatorKind kind = op.shape.kind;
  if (kind == OperatorKind::linear || kind == OperatorKind::expert_linear || kind == OperatorKind::attention)
    time.flop = models::forward_flop(op.shape) * (1.0 + time.again) + models::input_gradient_flop(op.shape) +
                models::weight_gradient_flop(op.shape);
  const auto price = [&](const models::Collectives& collectives, Phase phase, bool whole,
                         OperatorCollectives& into) {
    into.beside = price_collectives(collectives, op, layout, phase, whole, source, into.costs);
  };
  price(op.forward_collectives, Phase::forward, false, time.forward);
  price(op.backward_collectives, Phase::input_gradient, true, time.backward);
  price(op.backward_collectives, Phase::weight_gradient, true, time.weight);
  price(op.backward_collectives, Phase::input_gradient, false, time.split_backward);
  return time;
}

// Keeps only the visible part of exchanges that overlap another micro-batch.
void move_exchange_away(const Layout& layout, const CostSource& source, const PieceSeconds& piece,
                        PieceTimes& times) {
  const auto of_all = [&](auto&& visit) {
    for (OperatorTime& op : times.operators)
      for (OperatorCollectives* pass : {&op.forward, &op.backward, &op.split_backward})
        for (CollectiveCost& c : pass->costs)
          if (c.kind == CommunicationKind::expert) visit(c, pass != &op.split_backward);
  };
  double exchange_s = 0.0;
  of_all([&](const CollectiveCost& c, bool once) { exchange_s += once ? c.exposed_s : 0.0; });
  const double share = exchange_exposed(exchange_s, piece, layout, source);
  of_all([&](CollectiveCost& c, bool) {
    c.apart_s = c.exposed_s *= share;
    c.away_s = c.seconds - c.exposed_s;
  });
}

constexpr InstructionKind kPasses[] = {InstructionKind::forward, InstructionKind::backward,
                                       InstructionKind::input_gradient, InstructionKind::weight_gradient};

double& seconds_of(PieceSeconds& s, InstructionKind pass) {
  return pass == InstructionKind::forward          ? s.forward_s
         : pass == InstructionKind::backward       ? s.backward_s
         : pass == InstructionKind::input_gradient ? s.input_gradient_s
                                                   : s.weight_gradient_s;
}

PieceTimes times_of(const models::LayerProgram& program, Piece piece, const Layout& layout,
                    const CostSource& source) {
  PieceTimes times;
  times.parameters = models::parameter_share(program);
  const std::array<PieceSeconds, 3> whole = source.pieces_s(piece, layout, program);
  const std::array<PieceSeconds, 3> launching = source.launching_s(piece, program);
  for (size_t i = 0; i < program.operators.size(); ++i)
    times.operators.push_back(time_of(program, i, piece, layout, source));
  // Pieces other than layers recompute nothing.
  const Recompute again = piece == Piece::layer ? layout.recompute : Recompute::none;
  if (layout.overlaps_exchange(again)) move_exchange_away(layout, source, whole[size_t(again)], times);
  for (const bool recomputes : {false, true}) {
    const auto r = size_t(recomputes ? layout.recompute : Recompute::none);
    PieceSeconds& rest = times.rest[size_t(recomputes)];
    for (const InstructionKind pass : kPasses) {
      const double device_s = seconds_of(whole[r], pass) + times.exposed_s(pass, recomputes);
      const double host_s = std::max(0.0, seconds_of(launching[r], pass) - device_s);
      seconds_of(rest, pass) = seconds_of(whole[r], pass) + host_s - times.operators_s(pass, recomputes);
    }
  }
  return times;
}

}  // namespace

double OperatorCollectives::seconds() const { return sum_of<double>(costs, &CollectiveCost::seconds); }

double OperatorCollectives::exposed_s() const { return sum_of<double>(costs, &CollectiveCost::exposed_s); }

bool has_input_gradient(InstructionKind pass) {
  return pass == InstructionKind::backward || pass == InstructionKind::input_gradient;
}
bool has_weight_gradient(InstructionKind pass) {
  return pass == InstructionKind::backward || pass == InstructionKind::weight_gradient;
}

double seconds_of(const PieceSeconds& seconds, InstructionKind pass) {
  PieceSeconds copy = seconds;
  return seconds_of(copy, pass);
}

double PieceTimes::operators_s(InstructionKind pass, bool recomputes) const {
  double sum = 0.0;
  for (const OperatorTime& op : operators) {
    if (pass == InstructionKind::forward) sum += op.forward_s;
    if (has_input_gradient(pass)) sum += op.input_gradient_s + (recomputes ? op.again * op.forward_s : 0.0);
    if (has_weight_gradient(pass)) sum += op.weight_gradient_s;
  }
  return sum;
}

double PieceTimes::exposed_s(InstructionKind pass, bool recomputes) const {
  double sum = 0.0;
  for (const OperatorTime& op : operators) {
    if (pass == InstructionKind::forward) sum += op.forward.exposed_s();
    if (has_input_gradient(pass))
      sum += (has_weight_gradient(pass) ? op.backward.exposed_s() + op.weight.exposed_s()
                                        : op.split_backward.exposed_s()) +
             (recomputes ? op.again * op.forward.exposed_s() : 0.0);
  }
  return sum;
}

double PieceTimes::seconds(InstructionKind pass, bool recomputes) const {
  return operators_s(pass, recomputes) + exposed_s(pass, recomputes) +
         seconds_of(rest[size_t(recomputes)], pass);
}

ModelPieces piece_times(models::PiecePrograms& programs, const CostSource& source) {
  const Layout& layout = programs.layout();
  const models::LayerKinds& kinds = *programs.kinds();
  ModelPieces pieces;
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    auto& layer = pieces.layers.emplace_back(times_of(programs.layer(kind), Piece::layer, layout, source));
    layer.name = kinds.title(kind);
    layer.count = kinds.all()[kind];
  }
  pieces.embedding = times_of(programs.embedding(), Piece::embedding, layout, source);
  pieces.embedding.name = "embedding";
  pieces.head = times_of(programs.last_stage(), Piece::head, layout, source);
  pieces.head.name = "head and loss";
  return pieces;
}

}  // namespace mpt::planner
