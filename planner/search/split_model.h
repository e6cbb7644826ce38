// SPDX-License-Identifier: Apache-2.0
#pragma once

// SplitModel: memory and price of the pieces of a model under one split (tensor, context, experts,
// micro-batch). All layouts with that split share it, whatever their pipeline and replicas.

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "planner/cost/step_pricer.h"
#include "planner/search/problem.h"
#include "planner/simulate/simulator.h"

namespace mpt::planner {

/// Price of the pieces of a model under one split.
struct SplitPrices {
  /// `alike`: of a split that differs only in how experts lie; may be null.
  SplitPrices(const SearchProblem& problem, models::PiecePrograms& programs, const SplitPrices* alike);
  std::vector<PieceCosts> costs;  // by pool
  // Of a micro-batch in the whole model, whatever the schedule and recompute, by pool.
  std::vector<double> least_work_s;
  std::vector<std::array<double, 3>> least_work_by_recompute_s;  // the same under one recompute
  // The model as a share of itself, each piece on the devices that are best at it: 1 if all pieces take as
  // many times as long on some devices as on others.
  double least_share = 0.0;
  std::array<double, 3> least_share_by_recompute{};
  // The rest is of each piece on the devices that are fastest at it.
  double least_layer_forward_s = 0.0, least_head_s = 0.0;
  double least_way_s = 0.0;  // of a micro-batch, there and back
  double least_work_without_experts_s = 0.0;
  std::vector<std::pair<double, int64_t>>
      layers_by_least_s;  // least work and number of layers, dearest first
};

/// Used by one thread. The price is worked out when it is first asked for: for many splits memory says
/// enough.
class SplitModel {
 public:
  /// `problem` and `alike` must outlive it. `kinds`: of its model; null where nobody else has them. `alike`:
  /// of a layout that differs only in how experts lie; may be null.
  SplitModel(const SearchProblem& problem, const Layout& layout,
             std::shared_ptr<const models::LayerKinds> kinds = nullptr, const SplitModel* alike = nullptr);
  const SplitPrices& prices() const;
  /// Null before prices() was asked for.
  const SplitPrices* known_prices() const { return prices_ ? &*prices_ : nullptr; }
  /// Programs are kept for prices(); gives their memory back where those may never be asked for.
  void forget_programs() const { programs_.forget(); }

 private:
  mutable models::PiecePrograms programs_;

 public:
  models::StagePieces pieces;
  const int64_t least_layer_bytes;
  const models::ParameterShare parameters;  // of the whole model

 private:
  const SearchProblem& problem_;
  const SplitModel* const alike_;
  mutable std::optional<SplitPrices> prices_;
};

/// Durations of the layout's instructions, each stage on its own devices.
StepCost cost_of(const SearchProblem& problem, const SplitModel& split, const Layout& layout,
                 std::span<const int> rank_of_stage);

/// Costs of the split's pieces on the devices of each pipeline rank.
DeviceCosts devices_of(const SearchProblem& problem, const SplitModel& split, const Layout& layout);

Contention contention_of(const SearchProblem& problem, const Layout& layout);

}  // namespace mpt::planner
