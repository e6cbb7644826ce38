// SPDX-License-Identifier: Apache-2.0
#include "planner/search/step_bounds.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

namespace mpt::planner {
namespace {

// Of one pipeline rank's stages.
struct RankWork {
  // Per micro-batch: forward, backward whole and in two.
  double forward_s = 0.0, backward_s = 0.0, input_gradient_s = 0.0, weight_gradient_s = 0.0;
  double least_reduction_s = std::numeric_limits<double>::infinity();
  StepEnd end;

  // Lowest first. `best_rate`: at which compute advances at most.
  void add(const StageCost& stage, bool gathers, double best_rate) {
    forward_s += stage.of(InstructionKind::forward);
    backward_s += stage.of(InstructionKind::backward);
    input_gradient_s += stage.of(InstructionKind::input_gradient);
    weight_gradient_s += stage.of(InstructionKind::weight_gradient);
    least_reduction_s = std::min(least_reduction_s, stage.of(InstructionKind::reduce_gradient));
    end.add(stage.of(InstructionKind::optimizer_step) / best_rate,
            gathers ? stage.of(InstructionKind::gather_parameters) : 0.0);
  }
};

// From the first stage to some other, with one micro-batch.
struct Way {
  double there_s = 0.0;
  double around_whole_s = 0.0, around_split_s = 0.0;  // there and back again

  // Through `stage` to the next one.
  void go_on(const StageCost& stage, double out_s, double home_s, double best_rate) {
    const double forward = stage.of(InstructionKind::forward);
    there_s += forward / best_rate + out_s;
    around_whole_s += (forward + stage.of(InstructionKind::backward)) / best_rate + out_s + home_s;
    around_split_s += (forward + stage.of(InstructionKind::input_gradient)) / best_rate + out_s + home_s;
  }
};

// Collects the bound of a step, rank by rank.
class LongestRank {
 public:
  /// `first`: the first stage.
  LongestRank(const Layout& layout, const StageCost& first, int64_t micro_batches, double best_rate)
      : reduces_(layout.reduces_gradients()),
        micro_(double(micro_batches)),
        best_rate_(best_rate),
        last_weight_s_(first.of(InstructionKind::weight_gradient) / best_rate) {
    if (reduces_) rest_.first_reduction_s = first.of(InstructionKind::reduce_gradient);
  }

  /// `way`: to the lowest stage of the rank; or of the highest of `ranks` that do the same.
  void add(const Way& way, const RankWork& rank, size_t ranks = 1) {
    const double reduction = reduces_ ? rank.least_reduction_s : 0.0;
    const double work = micro_ * (rank.forward_s + rank.backward_s);
    const double chain = micro_ * (rank.forward_s + rank.input_gradient_s);
    const double weight = micro_ * rank.weight_gradient_s;
    auto& [whole, split] = bounds_;
    whole.home_s = std::max(whole.home_s, way.around_whole_s + work / best_rate_);
    whole.there_s = std::max(whole.there_s, way.there_s + work / best_rate_ + reduction);
    split.home_s = std::max(split.home_s, way.around_split_s + chain / best_rate_ + last_weight_s_);
    split.there_s = std::max(split.there_s, way.there_s + (chain + weight) / best_rate_ + reduction);
    whole.all_work_s += double(ranks) * work;
    split.all_work_s += double(ranks) * (chain + weight);
    rest_.step_end_s = std::max(rest_.step_end_s, rank.end.end_s);
  }

  const MicroBatchBounds& micro_batches() const { return bounds_; }
  /// But for reductions of the ranks' own gradients, which are among the micro-batches' bounds.
  RestOfStep rest(double reduce_norm_s) const {
    RestOfStep rest = rest_;
    rest.reduce_norm_s = reduce_norm_s;
    return rest;
  }

 private:
  const bool reduces_;
  const double micro_, best_rate_, last_weight_s_;
  MicroBatchBounds bounds_;
  RestOfStep rest_;
};

LongestRank longest_rank(const Layout& layout, const StepCost& cost, std::span<const int> rank_of_stage,
                         int64_t micro_batches, double best_rate) {
  std::vector<std::optional<Way>> ways(size_t(layout.pipeline));
  std::vector<RankWork> ranks(ways.size());
  Way way;
  for (size_t s = 0; s < cost.stages.size(); ++s) {
    const StageCost& stage = cost.stages[s];
    const auto r = size_t(rank_of_stage[s]);
    if (!ways[r]) ways[r] = way;
    ranks[r].add(stage, layout.gathers_after_step(), best_rate);
    if (s + 1 == cost.stages.size()) break;
    const bool crosses = rank_of_stage[s] != rank_of_stage[s + 1];
    way.go_on(stage, crosses ? stage.of(InstructionKind::transfer_activation) : 0.0,
              crosses ? cost.stages[s + 1].of(InstructionKind::transfer_gradient) : 0.0, best_rate);
  }
  LongestRank longest(layout, cost.stages.front(), micro_batches, best_rate);
  for (size_t r = 0; r < ranks.size(); ++r) longest.add(*ways[r], ranks[r]);
  return longest;
}

LongestRank longest_rank(const Layout& layout, const KindCosts& costs, const StageKinds& stages,
                         int64_t micro_batches, double best_rate) {
  LongestRank longest(layout, costs.kinds[stages.kind_of_stage.front()], micro_batches, best_rate);
  const bool gathers = layout.gathers_after_step();
  Way way;
  size_t s = 0;
  for (const StageKinds::RowPlace& place : stages.places) {
    for (; s < place.stage; ++s)
      way.go_on(costs.kinds[stages.kind_of_stage[s]], costs.out_s[s], costs.home_s[s], best_rate);
    RankWork rank;
    for (const uint16_t kind : stages.rows[place.row]) rank.add(costs.kinds[kind], gathers, best_rate);
    longest.add(way, rank, place.ranks);
  }
  return longest;
}

}  // namespace

StepBounds MicroBatchBounds::with(const RestOfStep& rest, int64_t micro_batches,
                                  const Contention::Best& best) const {
  const double micro = double(micro_batches) / best.of_one, traffic_s = micro * rest.traffic_s;
  // The way home waits for no weight gradient that is computed apart, nor for its scattering.
  const double home_s = micro * rest.gathers_s;
  // A rounding error must not turn the bound into more than the time it bounds.
  const auto bound = [&](const Longest& longest, double home_traffic_s) {
    return (std::max({longest.home_s + rest.first_reduction_s + home_traffic_s,
                      longest.there_s + rest.least_reduction_s + traffic_s,
                      longest.all_work_s / best.of_all}) +
            rest.reduce_norm_s + rest.step_end_s) *
           (1.0 - 1e-9);
  };
  return {bound(whole, traffic_s), bound(split, home_s)};
}

MicroBatchBounds micro_batch_bounds_s(const Layout& layout, const KindCosts& costs, const StageKinds& stages,
                                      int64_t micro_batches, const Contention::Best& best) {
  return longest_rank(layout, costs, stages, micro_batches, best.of_one).micro_batches();
}

StepBounds lower_bounds_s(const Layout& layout, const StepCost& cost, std::span<const int> rank_of_stage,
                          int64_t micro_batches, const Contention::Best& best) {
  const LongestRank longest = longest_rank(layout, cost, rank_of_stage, micro_batches, best.of_one);
  return longest.micro_batches().with(longest.rest(cost.reduce_norm_s), micro_batches, best);
}

StepBounds lower_bounds_s(const Layout& layout, const KindCosts& costs, const StageKinds& stages,
                          int64_t micro_batches, const Contention::Best& best) {
  const LongestRank longest = longest_rank(layout, costs, stages, micro_batches, best.of_one);
  return longest.micro_batches().with(longest.rest(costs.reduce_norm_s), micro_batches, best);
}

double StepBounds::of(const ScheduleEntry& entry) const {
  return entry.made_to_measure ? std::min(whole_s, split_s) : entry.splits_backward ? split_s : whole_s;
}

}  // namespace mpt::planner
