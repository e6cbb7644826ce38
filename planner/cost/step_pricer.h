// SPDX-License-Identifier: Apache-2.0
#pragma once

// StepPricer: prices layouts one after the other that differ only in how their layers are divided and
// recomputed. A search prices millions. The common part of such layouts is computed once, and of a pipeline's
// stages only the different ones are priced.

#include <span>
#include <vector>

#include "planner/cost/step_cost.h"

namespace mpt::planner {

/// The stages of a layout: the different ones, and the index of each. Valid for every recompute if the layout
/// does not give numbers of recomputed layers.
struct StageKinds {
  std::vector<StageKind> kinds;
  std::vector<StageContent> contents;  // of each kind's first stage; all others have its footprint
  std::vector<uint16_t> kind_of_stage;
  std::vector<int> rank_of_stage;
  /// Kinds of the stages of a pipeline rank, lowest first: the different rows, and the row of each rank.
  std::vector<std::vector<uint16_t>> rows;
  std::vector<uint16_t> row_of_rank;
  /// A row and its number of ranks. `stage`: of the lowest stages of these ranks, the highest. Sorted by it.
  struct RowPlace {
    uint16_t row = 0;
    size_t ranks = 0, stage = 0;
  };
  std::vector<RowPlace> places;
};
StageKinds stage_kinds(const DeviceCosts& devices, const Layout& layout, std::span<const int> rank_of_stage);

/// Traffic that ZeRO adds to every micro-batch of parameters `share`: gathering of weights in the forward and
/// in the backward, and scattering of gradients. `head`: the part of it that is gathered with the head.
struct ShardedTraffic {
  double forward_s = 0.0, backward_s = 0.0, scatter_s = 0.0;
};
ShardedTraffic sharded_traffic(const Layout& layout, const models::ParameterShare& share,
                               const models::ParameterShare& head, const CostSource& source);

/// The costs of a layout that a bound uses.
struct KindCosts {
  std::vector<StageCost> kinds;  // by kind of stage, without transfers
  /// Transfers between each stage and the next, forward and back, up to the largest `stage` of a row.
  std::vector<double> out_s, home_s;
  double reduce_norm_s = 0.0;
};

/// The least time of a step without its micro-batches' work: compute hides all that it can hide.
struct RestOfStep {
  // Sharded traffic per micro-batch, on the rank with the least: of weights, and in total.
  double gathers_s = 0.0, traffic_s = 0.0;
  double first_reduction_s = 0.0, least_reduction_s = 0.0;  // of the first stage; of any
  double reduce_norm_s = 0.0;
  double step_end_s = 0.0;  // optimizer and gathering, on the rank where they take longest
};

/// Communication of the ranks that hold equal parameters in a step, and their optimizer.
struct StateCost {
  size_t device = 0;
  models::ParameterShare share;
  ShardedTraffic traffic;
  double reduction_s = 0.0, gather_s = 0.0, optimizer_s = 0.0;
};
/// The known ones. They apply to layouts that differ only in micro-batch, sequence parallelism, method of
/// context parallelism, chunks, schedule and recompute.
using StateCosts = std::vector<StateCost>;

class StepPricer {
 public:
  enum class Part { whole_step, micro_batches };  // the latter without the end of the step

  /// All arguments must outlive the pricer. The division and the recompute of `layout` are ignored. `states`:
  /// of such layouts; null: none are known.
  StepPricer(const DeviceCosts& devices, const models::StagePieces& pieces, const ModelSpec& model,
             const Layout& layout, Part part = Part::whole_step, StateCosts* states = nullptr);

  /// Writes to `cost` and reuses its memory.
  void price(const StageKinds& stages, Recompute recompute, StepCost& cost);
  void price(const StageKinds& stages, Recompute recompute, KindCosts& costs);
  /// For any recompute. `best_rate`: the highest rate at which compute advances.
  RestOfStep least_rest(const StageKinds& stages, double best_rate);
  /// The state of a stage of `kind` on one of its devices.
  const StateCost& state_cost(size_t device, const StageKind& kind);

 private:
  // One stage: per micro-batch, then at the step's end; only the parts that compute cannot hide.
  struct KindSharding {
    double gathers_s = 0.0, traffic_s = 0.0, reduction_s = 0.0, optimizer_s = 0.0, gather_s = 0.0;
  };
  struct PricedStage {
    StageCost cost;
    InsideStage inside{};
  };

  models::ParameterShare parameters(const StageKind& kind) const;
  PricedStage price(const StageKind& kind, Recompute recompute);
  KindSharding least_sharding(const StageKind& kind);
  double reduce_norm_s(const StageKinds& stages);
  PricedStage price_on(size_t device, const StageKind& kind, Recompute recompute);
  void add_step_end(PricedStage& stage, const PieceCost& piece, int64_t pieces, double alone,
                    double share_lost, const StateCost& state) const;
  double transfer_s(const StageKinds& stages, size_t from, size_t to);
  double norm_s(const StageKinds& stages);
  double tied_embedding_s(bool apart) const;

  const DeviceCosts& devices_;
  const models::StagePieces& pieces_;
  const ModelSpec& model_;
  const Layout& layout_;
  const Part part_;
  const CostSource& any_;
  const double dispatch_s_;
  const int64_t stride_;  // between pipeline ranks
  int64_t transfer_bytes_;
  double transfer_gather_s_ = 0.0;
  std::vector<double> to_next_rank_s_, within_rank_s_;  // by rank; negative: not computed yet
  std::pair<int, int> last_between_{-1, -1};            // other pairs: from the last rank to the first
  double last_transfer_s_ = 0.0;
  double norm_meeting_s_ = -1.0;  // of all ranks
  StateCosts own_states_;
  StateCosts& states_;
  size_t last_state_ = 0;                       // index of the last one asked for
  std::vector<models::ParameterShare> shares_;  // by kind of stage, like costs_
  std::vector<StageCost> costs_;
};

/// `rank_of_stage`: pipeline rank of each virtual stage.
StepCost step_cost(const DeviceCosts& devices, const models::StagePieces& pieces, const ModelSpec& model,
                   const Layout& layout, std::span<const int> rank_of_stage);

}  // namespace mpt::planner
