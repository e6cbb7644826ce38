// SPDX-License-Identifier: Apache-2.0
#pragma once

// The time of a piece as the sum of its operators' times, recompute included. Shared by every
// cost source that prices single operators.

#include <array>
#include <functional>

#include "models/layer_program.h"
#include "planner/cost/cost_source.h"
#include "profiler/hardware/profile.h"

namespace mpt::planner {

/// The share of operator `index` of a decoder layer that a backward under `recompute` runs forward again:
/// with selective what the operator says; with full, all of every operator before the last one that keeps
/// something, since what that one and those behind it put out no backward reads (the last projection and
/// residual).
double recomputed_share(const models::LayerProgram& layer, size_t index, Recompute recompute);

double seconds_of(const PieceSeconds& piece, profiler::Phase phase);

/// Seconds of one operator in Phase::forward, input_gradient or weight_gradient.
using OperatorSeconds = std::function<double(const models::Operator&, profiler::Phase)>;

/// One operator in all of them.
struct PhaseSeconds {
  double forward_s = 0.0, input_gradient_s = 0.0, weight_gradient_s = 0.0;
};

/// The four passes of a piece under every recompute, each operator priced once.
std::array<PieceSeconds, 3> sums_of_operators(
    const models::LayerProgram& program, profiler::Piece piece,
    const std::function<PhaseSeconds(const models::Operator&)>& phases_s);

/// Of all operators of `program`, the recomputed ones of a layer twice.
double sum_of_operators(const models::LayerProgram& program, profiler::Piece piece, profiler::Phase phase,
                        Recompute recompute, const OperatorSeconds& operator_s);

}  // namespace mpt::planner
