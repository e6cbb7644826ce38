// SPDX-License-Identifier: Apache-2.0
#pragma once

// StepPricer: prices layouts that differ in how their layers are divided and recomputed, and in nothing else,
// one after the other. A search prices millions: what such layouts share is worked out once, and of a
// pipeline's stages only those that differ.

#include <span>
#include <vector>

#include "planner/cost/step_cost.h"

namespace mpt::planner {

/// The stages of a layout: the different ones, and which of them each is. Holds for every recompute where the
/// layout does not say how many layers recompute.
struct StageKinds {
  std::vector<StageKind> kinds;
  std::vector<StageContent> contents;  // by kind, of its first stage: all others have its footprint
  std::vector<uint16_t> kind_of_stage;
  std::vector<int> rank_of_stage;
  /// Kinds of a pipeline rank's stages, lowest first: the different rows, and which of them each rank has.
  std::vector<std::vector<uint16_t>> rows;
  std::vector<uint16_t> row_of_rank;
  /// A row, how many ranks have it, and the lowest stage of the one of them that lies highest; lowest first.
  struct RowPlace {
    uint16_t row = 0;
    size_t ranks = 0, stage = 0;
  };
  std::vector<RowPlace> places;
};
StageKinds stage_kinds(const DeviceCosts& devices, const Layout& layout, std::span<const int> rank_of_stage);

/// What ZeRO adds to every micro-batch of parameters `share`: gathering of weights, once for forward and once
/// for backward (stage 3), and scattering of gradients (2 and 3). Zero below.
struct ShardedTraffic {
  double gather_s = 0.0, scatter_s = 0.0;
};
ShardedTraffic sharded_traffic(const Layout& layout, const models::ParameterShare& share,
                               const CostSource& source);

/// What a bound needs to know of a layout's cost.
struct KindCosts {
  std::vector<StageCost> kinds;  // by kind of stage, without transfers
  /// Transfers between each stage and the next one, there and back, below the highest place of a row.
  std::vector<double> out_s, home_s;
  double reduce_norm_s = 0.0;
};

/// What a step takes but for its micro-batches' own work, at least: all that compute can hide is hidden.
struct RestOfStep {
  // Of sharded traffic per micro-batch, on the rank that has least of it: weights, and all of it.
  double gathers_s = 0.0, traffic_s = 0.0;
  double first_reduction_s = 0.0, least_reduction_s = 0.0;  // of the first stage; of any
  double reduce_norm_s = 0.0;
  double step_end_s = 0.0;  // optimizer and gathering, on the rank where they take longest
};

/// What the ranks that hold equal parameters send each other in a step, and their optimizer.
struct StateCost {
  size_t device = 0;
  models::ParameterShare share;
  ShardedTraffic traffic;
  double reduction_s = 0.0, gather_s = 0.0, optimizer_s = 0.0;
};
/// Those worked out so far. They hold for layouts that differ in micro-batch, sequence parallelism, method of
/// context parallelism, chunks, schedule and recompute alone.
using StateCosts = std::vector<StateCost>;

class StepPricer {
 public:
  enum class Part { whole_step, micro_batches };  // the latter without what comes behind them

  /// All of them must outlive the pricer. Of `layout` the division and the recompute are of no account.
  /// `states`: of such layouts; null: none are known.
  StepPricer(const DeviceCosts& devices, const models::StagePieces& pieces, const ModelSpec& model,
             const Layout& layout, Part part = Part::whole_step, StateCosts* states = nullptr);

  /// Writes to `cost`, whose memory is used again.
  void price(const StageKinds& stages, Recompute recompute, StepCost& cost);
  void price(const StageKinds& stages, Recompute recompute, KindCosts& costs);
  /// Whatever the recompute. `best_rate`: at which compute advances at most.
  RestOfStep least_rest(const StageKinds& stages, double best_rate);
  /// Of a stage of `kind` on one of its devices.
  const StateCost& state_cost(size_t device, const StageKind& kind);

 private:
  // Of one stage: per micro-batch, and behind them, as far as compute cannot hide it.
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
  std::vector<double> to_next_rank_s_, within_rank_s_;  // by rank; negative where not asked for yet
  std::pair<int, int> last_between_{-1, -1};            // of others: round the corner
  double last_transfer_s_ = 0.0;
  double norm_meeting_s_ = -1.0;  // of all ranks
  StateCosts own_states_;
  StateCosts& states_;
  size_t last_state_ = 0;                       // index of the one asked for last
  std::vector<models::ParameterShare> shares_;  // by kind of stage, like the next
  std::vector<StageCost> costs_;
};

/// `rank_of_stage`: pipeline rank of each virtual stage.
StepCost step_cost(const DeviceCosts& devices, const models::StagePieces& pieces, const ModelSpec& model,
                   const Layout& layout, std::span<const int> rank_of_stage);

}  // namespace mpt::planner
