// SPDX-License-Identifier: Apache-2.0
#pragma once

// OperatorPieces: the time of a piece as the sum of its operators' times, recompute included. Shared by every
// cost source that prices single operators.

#include <functional>

#include "models/layer_program.h"
#include "profiler/hardware/profile.h"

namespace mpt::planner {

/// Whether a backward under `recompute` runs operator `index` of a decoder layer forward again: the attention
/// core with selective; with full, every operator before the last one that keeps something, since what that
/// one and those behind it put out no backward reads (the last projection and residual).
bool is_recomputed(const models::LayerProgram& layer, size_t index, Recompute recompute);

class OperatorPieces {
 public:
  /// Seconds of one operator in Phase::forward, input_gradient or weight_gradient.
  using OperatorSeconds = std::function<double(const models::Operator&, profiler::Phase)>;

  OperatorPieces(const ModelSpec& model, int64_t sequence) : model_(model), sequence_(sequence) {}

  double seconds(profiler::Piece piece, profiler::Phase phase, const Layout& layout, int64_t layer,
                 const OperatorSeconds& operator_s) const;

 private:
  const ModelSpec& model_;
  int64_t sequence_;
};

}  // namespace mpt::planner
