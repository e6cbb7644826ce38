// SPDX-License-Identifier: Apache-2.0
#pragma once

// The time of a piece as the sum of its operators' times, recompute included. All cost sources that price
// single operators share it.

#include <array>
#include <functional>

#include "models/layer_operators.h"
#include "planner/cost/cost_source.h"
#include "profiler/hardware/profile.h"

namespace mpt::planner {

/// The share of operator `index` of a decoder layer that a backward under `recompute` runs forward again.
/// With selective: the operator's selective_share. With full: all of every operator before the last one that
/// keeps something. No backward reads the outputs of that one and of later ones (the last projection and
/// residual).
double recomputed_share(const models::LayerProgram& layer, size_t index, Recompute recompute);

double seconds_of(const PieceSeconds& piece, profiler::Phase phase);

/// Seconds of one operator in Phase::forward, input_gradient or weight_gradient.
using OperatorSeconds = std::function<double(const models::Operator&, profiler::Phase)>;

/// One operator in all three phases.
struct PhaseSeconds {
  double forward_s = 0.0, input_gradient_s = 0.0, weight_gradient_s = 0.0;
};

/// The four passes of a piece under every recompute, each operator priced once.
std::array<PieceSeconds, 3> sums_of_operators(
    const models::LayerProgram& program, profiler::Piece piece,
    const std::function<PhaseSeconds(const models::Operator&)>& phases_s);

/// Sum over all operators of `program`. Recomputed operators of a layer also add their forward.
double sum_of_operators(const models::LayerProgram& program, profiler::Piece piece, profiler::Phase phase,
                        Recompute recompute, const OperatorSeconds& operator_s);

}  // namespace mpt::planner
