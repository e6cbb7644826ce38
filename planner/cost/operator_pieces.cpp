// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/operator_pieces.h"

namespace mpt::planner {

using models::Operator;
using profiler::Phase;
using profiler::Piece;

double recomputed_share(const models::LayerProgram& layer, size_t index, Recompute recompute) {
  if (recompute == Recompute::none) return 0.0;
  if (recompute == Recompute::selective) return layer.operators[index].selective_share;
  if (layer.recomputed_whole) return 1.0;
  size_t last = layer.operators.size() - 1;
  while (last > 0 && layer.operators[last].saved_bytes == 0) --last;
  return index < last ? 1.0 : 0.0;
}

double seconds_of(const PieceSeconds& piece, Phase phase) {
  return phase == Phase::forward          ? piece.forward_s
         : phase == Phase::backward       ? piece.backward_s
         : phase == Phase::input_gradient ? piece.input_gradient_s
                                          : piece.weight_gradient_s;
}

std::array<PieceSeconds, 3> CostSource::pieces_s(Piece piece, const Layout& layout,
                                                 const models::LayerProgram& program) const {
  std::array<PieceSeconds, 3> pieces;
  Layout under = layout;
  for (const auto& [recompute, name] : EnumNames<Recompute>::table()) {
    under.recompute = recompute;
    pieces[size_t(recompute)] = {piece_s(piece, Phase::forward, under, program),
                                 piece_s(piece, Phase::backward, under, program),
                                 piece_s(piece, Phase::input_gradient, under, program),
                                 piece_s(piece, Phase::weight_gradient, under, program)};
  }
  return pieces;
}

std::array<PieceSeconds, 3> sums_of_operators(
    const models::LayerProgram& program, Piece piece,
    const std::function<PhaseSeconds(const models::Operator&)>& phases_s) {
  std::array<PieceSeconds, 3> pieces;
  for (size_t i = 0; i < program.operators.size(); ++i) {
    auto [forward, input, weight] = phases_s(program.operators[i]);
    if (program.operators[i].shape.frozen) weight = 0.0;
    for (const auto& [recompute, name] : EnumNames<Recompute>::table()) {
      const double again = piece == Piece::layer ? recomputed_share(program, i, recompute) * forward : 0.0;
      PieceSeconds& sum = pieces[size_t(recompute)];
      sum.forward_s += forward;
      sum.input_gradient_s += input + again;
      sum.weight_gradient_s += weight;
      sum.backward_s += input + weight + again;
    }
  }
  return pieces;
}

double sum_of_operators(const models::LayerProgram& program, Piece piece, Phase phase, Recompute recompute,
                        const OperatorSeconds& operator_s) {
  const bool input = phase == Phase::backward || phase == Phase::input_gradient;
  const bool weight = phase == Phase::backward || phase == Phase::weight_gradient;
  double sum = 0.0;
  for (size_t i = 0; i < program.operators.size(); ++i) {
    const Operator& op = program.operators[i];
    if (phase == Phase::forward) sum += operator_s(op, Phase::forward);
    if (input) sum += operator_s(op, Phase::input_gradient);
    if (weight && !op.shape.frozen) sum += operator_s(op, Phase::weight_gradient);
    if (const double again = recomputed_share(program, i, recompute);
        input && piece == Piece::layer && again > 0.0)
      sum += again * operator_s(op, Phase::forward);
  }
  return sum;
}

}  // namespace mpt::planner
