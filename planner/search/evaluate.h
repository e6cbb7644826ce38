// SPDX-License-Identifier: Apache-2.0
#pragma once

// Evaluation of one layout: its bound without a schedule, and its program, memory and simulated time.

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/schedule.h"
#include "core/schedule_catalog.h"
#include "core/timeline.h"
#include "planner/cost/step_pricer.h"
#include "planner/search/problem.h"
#include "planner/simulate/simulator.h"

namespace mpt::planner {

/// Price of the pieces of a model under one split.
struct SplitPrices {
  /// `alike`: of a split that differs in how experts lie alone; may be null.
  SplitPrices(const SearchProblem& problem, models::PiecePrograms& programs, const SplitPrices* alike);
  std::vector<PieceCosts> costs;  // by pool
  // Of a micro-batch in the whole model, whatever the schedule and recompute, by pool.
  std::vector<double> least_work_s;
  std::vector<std::array<double, 3>> least_work_by_recompute_s;  // the same under one recompute
  double least_layer_forward_s;                                  // on the fastest devices, like the next
  std::vector<std::pair<double, int64_t>>
      layers_by_least_s;  // least work and number of layers, dearest first
};

/// Memory and price of the pieces of a model under one split; shared by all layouts of a family, and by one
/// thread. The price is worked out when first asked for: of many splits the memory says enough.
class SplitModel {
 public:
  /// `problem` must outlive it. `kinds`: of its model; null where nobody else has them. `alike`: of a layout
  /// that differs in how experts lie alone; may be null.
  SplitModel(const SearchProblem& problem, const Layout& layout,
             std::shared_ptr<const models::LayerKinds> kinds = nullptr,
             std::shared_ptr<const SplitModel> alike = nullptr);
  const SplitPrices& prices() const;
  /// Programs are kept for prices(); gives their memory back where those may never be asked for.
  void forget_programs() const { programs_.forget(); }

 private:
  mutable models::PiecePrograms programs_;

 public:
  const models::StagePieces pieces;
  const int64_t least_layer_bytes;
  const models::ParameterShare parameters;  // of the whole model

 private:
  const SearchProblem& problem_;
  const std::shared_ptr<const SplitModel> alike_;
  mutable std::optional<SplitPrices> prices_;
};

/// Durations of the layout's instructions, each stage on its own devices.
StepCost cost_of(const SearchProblem& problem, const SplitModel& split, const Layout& layout,
                 std::span<const int> rank_of_stage);

/// What the split's pieces cost on the devices of each of the layout's pipeline ranks.
DeviceCosts devices_of(const SearchProblem& problem, const SplitModel& split, const Layout& layout);

/// What is known of a layout before any schedule is made.
struct Estimate {
  Layout layout;
  std::vector<StageFootprint> footprints;
  StepCost cost;
  double bound_s = 0.0;
  int64_t floor_bytes = 0;  // of the fullest rank; its exact peak is not below
};
Estimate estimate(const SearchProblem& problem, const Layout& layout);
Estimate estimate(const SearchProblem& problem, const SplitModel& split, const Layout& layout);
/// From what its stages hold and cost.
Estimate estimate(const SearchProblem& problem, const Layout& layout, std::vector<StageFootprint> footprints,
                  StepCost cost);

/// Never above the simulated step time. Each rank's work waits for one micro-batch to come through the stages
/// below the rank's lowest and over the links between them. Behind it comes either that micro-batch's way
/// back and the reduction of stage 0's gradients, or, where weight gradients are computed apart, the rank's
/// own last of those and a reduction of its own; whichever is later. Then the norm, the optimizer and the
/// gathering of weights. None of these overlaps another, so they add up. Where ranks share cores, compute
/// advances at no more than the best rate of one lane, and all ranks together at no more than the best total.
/// Both where backwards are whole and where they are split.
struct StepBounds {
  double whole_s = 0.0, split_s = 0.0;
  /// By a schedule; one that is made to measure may split backwards or not.
  double of(const ScheduleEntry& entry) const;
};
/// Of the micro-batches alone, where they take longest, with split and with whole backwards: the rank's work
/// and the ways to it and home, without the way home, and the work of all ranks.
struct MicroBatchBounds {
  struct Longest {
    double home_s = 0.0, there_s = 0.0, all_work_s = 0.0;
  };
  Longest whole, split;
  /// Of the step of which these are the micro-batches, priced without sharding.
  StepBounds with(const RestOfStep& rest, int64_t micro_batches, const Contention::Best& best) const;
};
MicroBatchBounds micro_batch_bounds_s(const Layout& layout, const KindCosts& costs, const StageKinds& stages,
                                      int64_t micro_batches, const Contention::Best& best);
StepBounds lower_bounds_s(const Layout& layout, const StepCost& cost, std::span<const int> rank_of_stage,
                          int64_t micro_batches, const Contention::Best& best);
/// The same of a layout whose stages are known by kind.
StepBounds lower_bounds_s(const Layout& layout, const KindCosts& costs, const StageKinds& stages,
                          int64_t micro_batches, const Contention::Best& best);
double lower_bound_s(const SearchProblem& problem, const Layout& layout, const StepCost& cost,
                     const ScheduleEntry& entry, std::span<const int> rank_of_stage);

struct Evaluation {
  Schedule schedule;
  StepProgram program;
  std::vector<RankMemory> memory;
  std::optional<Rejection> rejection;  // set: what follows is empty
  std::vector<double> durations_s;
  Timeline timeline;
  double step_time_s = 0.0;
  double bubble_share = 0.0;
  int64_t peak_bytes = 0;
};
Evaluation evaluate(const SearchProblem& problem, const Estimate& estimate);
/// Simulated whether it fits or not; `rejection` says if it does not.
Evaluation evaluate_regardless(const SearchProblem& problem, const Estimate& estimate);
/// Why the layout does not fit, transfer buffers included.
std::optional<Rejection> exact_memory_rejection(const SearchProblem& problem, const Estimate& estimate);

Contention contention_of(const SearchProblem& problem, const Layout& layout);
/// By the catalog; of a schedule that is made to measure, the leanest named one of its placement.
Schedule named_schedule(const Layout& layout, int64_t micro_batches);

}  // namespace mpt::planner
