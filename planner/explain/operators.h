// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is inside a forward or backward: the operators of each piece of the model, and the collectives beside
// them.

#include <array>
#include <string>
#include <vector>

#include "models/piece_programs.h"
#include "planner/cost/operator_collectives.h"
#include "planner/cost/operator_pieces.h"
#include "planner/search/problem.h"
#include "reports/trace.h"

namespace mpt::planner {

/// One operator for one micro-batch on one rank, on the cluster's first kind of device.
struct OperatorTime {
  std::string name;
  double forward_s = 0.0, input_gradient_s = 0.0, weight_gradient_s = 0.0;  // compute
  double again = 0.0;  // share of its forward that a backward runs again
  double flop = 0.0;   // of products and attention cores, forward and backward, that again included
  std::vector<CollectiveCost> forward_collectives, backward_collectives;

  double compute_s() const { return forward_s * (1.0 + again) + input_gradient_s + weight_gradient_s; }
};

/// A piece of the model: embedding, a decoder layer of one kind, or the head and what lies behind it.
struct PieceTimes {
  std::string name;
  int64_t count = 1;  // in the model
  std::vector<OperatorTime> operators;
  /// What the piece takes beside its operators one by one: a host that launches them too slowly, or a piece
  /// that was timed as a whole.
  PieceSeconds rest;

  /// Of a forward, a whole backward, an input gradient or a weight gradient, with exposed collectives.
  double seconds(InstructionKind pass, bool recomputes = true) const;
};

/// Where the layout recomputes only some layers: of one that does.
std::vector<PieceTimes> operator_times(const SearchProblem& problem, const Layout& layout);

/// A table of each piece's operators.
std::string describe_operators(const SearchProblem& problem, const Layout& layout);

/// Of the first micro-batch's instructions: operators, and collectives in streams of their own.
std::vector<reports::InnerSpan> inner_spans(const SearchProblem& problem, const Layout& layout,
                                            const StepProgram& program, const Timeline& timeline);

}  // namespace mpt::planner
