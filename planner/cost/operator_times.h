// SPDX-License-Identifier: Apache-2.0
#pragma once

// The pieces of a model operator by operator, each with its collectives, for analyses inside a forward or
// backward. Searches price whole pieces (StepPricer).

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
  double again = 0.0;  // share of its forward that a recomputing layer's backward runs again
  double flop = 0.0;   // of products and attention cores, forward, backward and recompute
  // `backward` and `weight`: collectives around or during the input gradient and during the weight gradient
  // of a whole backward. `split_backward`: all collectives of a separate input gradient.
  OperatorCollectives forward, backward, weight, split_backward;

  double compute_s() const { return forward_s * (1.0 + again) + input_gradient_s + weight_gradient_s; }
};

/// Whether a pass, such as a whole backward, includes the input gradient; or the weight gradient.
bool has_input_gradient(InstructionKind pass);
bool has_weight_gradient(InstructionKind pass);
double seconds_of(const PieceSeconds& seconds, InstructionKind pass);

/// A piece of the model: embedding, a decoder layer of one kind, or the head and all after it.
struct PieceTimes {
  std::string name;
  int64_t count = 1;  // number in the model
  models::ParameterShare parameters;
  std::vector<OperatorTime> operators;
  /// Time of the piece in addition to its operators one by one, without and with recompute: a host that
  /// launches too slowly, or the difference to a time of the whole piece.
  std::array<PieceSeconds, 2> rest;

  /// Seconds of one pass, with exposed collectives.
  double seconds(InstructionKind pass, bool recomputes = true) const;
  /// Seconds of one pass, without collectives and without `rest`.
  double operators_s(InstructionKind pass, bool recomputes) const;
  /// Seconds of one pass: the collectives that its compute does not hide.
  double exposed_s(InstructionKind pass, bool recomputes) const;
};

struct ModelPieces {
  std::vector<PieceTimes> layers;  // by kind
  PieceTimes embedding, head;
};

/// On one device, for the programs' layout.
ModelPieces piece_times(models::PiecePrograms& programs, const CostSource& source);

}  // namespace mpt::planner
