// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/operator_pieces.h"

namespace mpt::planner {

using models::Operator;
using models::OperatorKind;
using profiler::Phase;
using profiler::Piece;

namespace {

models::LayerProgram program_of_piece(const ModelSpec& model, Piece piece, const Layout& layout,
                                      int64_t layer, int64_t sequence) {
  switch (piece) {
    case Piece::embedding:
      return models::embedding_program(model, layout, sequence);
    case Piece::layer:
      return models::layer_program(model, layer, layout, sequence);
    case Piece::head:
      return models::head_program(model, layout, sequence);
  }
  return {};
}

}  // namespace

bool is_recomputed(const models::LayerProgram& layer, size_t index, Recompute recompute) {
  if (recompute == Recompute::none) return false;
  if (recompute == Recompute::selective) {
    return layer.operators[index].shape.kind == OperatorKind::attention;
  }
  size_t last = layer.operators.size() - 1;
  while (last > 0 && layer.operators[last].saved_bytes == 0) --last;
  return index < last;
}

double OperatorPieces::seconds(Piece piece, Phase phase, const Layout& layout, int64_t layer,
                               const OperatorSeconds& operator_s) const {
  const models::LayerProgram program = program_of_piece(model_, piece, layout, layer, sequence_);
  const bool input = phase == Phase::backward || phase == Phase::input_gradient;
  const bool weight = phase == Phase::backward || phase == Phase::weight_gradient;
  double sum = 0.0;
  for (size_t i = 0; i < program.operators.size(); ++i) {
    const Operator& op = program.operators[i];
    if (phase == Phase::forward) sum += operator_s(op, Phase::forward);
    if (input) sum += operator_s(op, Phase::input_gradient);
    if (weight) sum += operator_s(op, Phase::weight_gradient);
    if (input && piece == Piece::layer && is_recomputed(program, i, layout.recompute))
      sum += operator_s(op, Phase::forward);
  }
  return sum;
}

}  // namespace mpt::planner
