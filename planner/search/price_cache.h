// SPDX-License-Identifier: Apache-2.0
#pragma once

// PriceCache: prices that layouts of a search share. The key of each map names the inputs of its values.
// Nothing is ever dropped, so references stay valid.

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "planner/search/leaves.h"
#include "planner/search/split_model.h"

namespace mpt::planner {

/// Contiguous stages of at least one layer each whose slowest is as fast as can be. `before_s` is work of the
/// first stage beside its layers (the embedding), `after_s` of the last (the head). Where several divisions
/// are equally fast, early stages hold fewer layers, since they keep the most micro-batches.
/// `layer_s` must have at least `stages` entries.
/// `slowness`: how many times longer each stage takes for the same work; empty where all are alike.
std::vector<int64_t> balanced_stages(std::span<const double> layer_s, double before_s, double after_s,
                                     int64_t stages, std::span<const double> slowness = {});

/// Prices of what ZeRO and the optimizer add, for layouts that differ only in micro-batch, sequence
/// parallelism, method of context parallelism, division and recompute.
struct ShardingPrices {
  StateCosts states;
  std::unordered_map<const StageKinds*, RestOfStep> rest;
};

/// Layers of each stage; equal ones are one and the same object.
using Division = const std::vector<int64_t>*;

class PriceCache {
 public:
  explicit PriceCache(const SearchProblem& problem)
      : problem_(problem), kinds_(std::make_shared<const models::LayerKinds>(problem.model)) {}

  const SplitModel& split(const Layout& layout);
  /// Lower bounds for a split that is not priced, by the prices of others; 0 where nothing is known. `way_s`:
  /// of a micro-batch's way through all layers and back, by a split with at most half as many sequences.
  /// `work_s`: of a rank's share of the work, by the layers without experts of a split that places those
  /// elsewhere.
  struct Known {
    double way_s = 0.0, work_s = 0.0;
  };
  Known known(const Layout& layout) const;
  ShardingPrices& sharding(const Layout& layout);
  Division even(int64_t stages);
  /// `slowness`: of each stage's devices, as in balanced_stages().
  Division balanced(const SplitModel& split, int64_t stages, const std::vector<double>& slowness);
  /// Stages of a leaf of the node `layout`, divided so.
  const StageKinds& stages(const Layout& layout, const Leaf& leaf, Division division);

 private:
  struct SplitKey {
    int64_t tensor = 0, context = 0, expert = 0, expert_split = 0;
    ContextMethod context_method{};
    bool sequence_parallel = false, copies_embedding = false, narrows_gathered = false;
    int64_t micro_batch = 0;  // the last: splits that differ in nothing else stand together
    auto operator<=>(const SplitKey&) const = default;
  };
  struct ShardingKey {
    int64_t tensor, context, pipeline, data, expert, expert_split, zero, shard;
    RankOrder order;
    bool offload;
    auto operator<=>(const ShardingKey&) const = default;
  };
  struct DivisionKey {
    const SplitModel* split;  // null: even
    int64_t stages;
    std::vector<double> slowness;
    bool operator<(const DivisionKey& o) const {
      return std::tie(split, stages, slowness) < std::tie(o.split, o.stages, o.slowness);
    }
  };
  struct StagesKey {
    Division division;
    int64_t pipeline;
    bool in_rounds;
    std::vector<PoolMask> pools;  // of the ranks, where devices differ
    bool operator<(const StagesKey& o) const {
      return std::tie(division, pipeline, in_rounds, pools) <
             std::tie(o.division, o.pipeline, o.in_rounds, o.pools);
    }
  };

  SplitKey key_of(const Layout& layout) const;
  static SplitKey without_experts(SplitKey key);

  const SearchProblem& problem_;
  const std::shared_ptr<const models::LayerKinds> kinds_;
  std::map<SplitKey, std::unique_ptr<const SplitModel>> splits_;
  std::map<SplitKey, const SplitModel*> dense_splits_;  // by split without experts
  SplitKey last_key_{};                                 // nodes of one split follow each other
  const SplitModel* last_split_ = nullptr;
  std::map<ShardingKey, ShardingPrices> shardings_;
  std::set<std::vector<int64_t>> divisions_;
  std::map<DivisionKey, Division> division_of_;
  std::map<StagesKey, StageKinds> stages_;
};

}  // namespace mpt::planner
