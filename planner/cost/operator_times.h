// SPDX-License-Identifier: Apache-2.0
#pragma once

// The pieces of a model operator by operator, with the collectives beside each: for all that look inside a
// forward or backward. Searches price whole pieces (StepPricer).

#include <array>
#include <string>
#include <vector>

#include "models/piece_programs.h"
#include "planner/cost/operator_collectives.h"

namespace mpt::planner {

struct OperatorCollectives {
  std::vector<CollectiveCost> costs;
  ComputeBeside beside;

  double seconds() const;
  double exposed_s() const;
};

/// One operator for one micro-batch on one rank.
struct OperatorTime {
  std::string name;
  models::OperatorKind kind = models::OperatorKind::linear;
  double forward_s = 0.0, input_gradient_s = 0.0, weight_gradient_s = 0.0;  // compute
  double again = 0.0;  // share of its forward that the backward of a layer that recomputes runs again
  double flop = 0.0;   // of products and attention cores, forward and backward, that again included
  // Of a backward in one, what runs around or beside its input gradient and beside its weight gradient; of an
  // input gradient alone, all.
  OperatorCollectives forward, backward, weight, split_backward;

  double compute_s() const { return forward_s * (1.0 + again) + input_gradient_s + weight_gradient_s; }
};

/// Of a whole backward, an input gradient and a weight gradient.
bool has_input_gradient(InstructionKind pass);
bool has_weight_gradient(InstructionKind pass);
double seconds_of(const PieceSeconds& seconds, InstructionKind pass);

/// A piece of the model: embedding, a decoder layer of one kind, or the head and what lies behind it.
struct PieceTimes {
  std::string name;
  int64_t count = 1;  // in the model
  models::ParameterShare parameters;
  std::vector<OperatorTime> operators;
  /// What the piece takes beside its operators one by one, where it keeps everything and where it recomputes:
  /// a host that launches them too slowly, or a piece that was timed as a whole.
  std::array<PieceSeconds, 2> rest;

  /// Of one pass, with exposed collectives.
  double seconds(InstructionKind pass, bool recomputes = true) const;
  /// Of one pass, without collectives and the rest.
  double operators_s(InstructionKind pass, bool recomputes) const;
  /// Of one pass, the collectives that its compute does not hide.
  double exposed_s(InstructionKind pass, bool recomputes) const;
};

struct ModelPieces {
  std::vector<PieceTimes> layers;  // by kind
  PieceTimes embedding, head;
};

/// On one device, under the programs' layout.
ModelPieces piece_times(models::PiecePrograms& programs, const CostSource& source);

}  // namespace mpt::planner
