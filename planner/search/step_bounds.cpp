// SPDX-License-Identifier: Apache-2.0
#include "planner/search/step_bounds.h"

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
    whole_way_s_ += double(ranks) * work / micro_;
    split_way_s_ += double(ranks) * chain / micro_;
    rest_.step_end_s = std::max(rest_.step_end_s, rank.end.end_s);
  }

  /// A link that all micro-batches cross `times` one after the other, `link_s` each. `way`: to its far end.
  void send(const Way& way, double link_s, double times) {
    const double others_s = (times * micro_ - 1.0) * link_s;
    auto& [whole, split] = bounds_;
    whole.link_s = std::max(whole.link_s, way.around_whole_s + others_s);
    split.link_s = std::max(split.link_s, way.around_split_s + others_s + last_weight_s_);
  }
  /// A rank that starts a micro-batch only when one of the `most` that it holds is back. `way`: to the rank.
  /// `all`: through all stages.
  void hold(const Way& way, const Way& all, size_t most) {
    const double rounds = std::ceil(micro_ / double(most));
    const auto held_s = [&](double way_s, double all_s) { return way_s + rounds * (all_s - way_s); };
    auto& [whole, split] = bounds_;
    whole.held_s = std::max(whole.held_s, held_s(way.around_whole_s, all.around_whole_s));
    split.held_s = std::max(split.held_s, held_s(way.around_split_s, all.around_split_s) + last_weight_s_);
  }

  /// One micro-batch also goes through all stages and back, whatever its way between them.
  MicroBatchBounds micro_batches() const {
    MicroBatchBounds bounds = bounds_;
    bounds.whole.link_s = std::max(bounds.whole.link_s, whole_way_s_ / best_rate_);
    bounds.split.link_s = std::max(bounds.split.link_s, split_way_s_ / best_rate_ + last_weight_s_);
    return bounds;
  }
  /// But for reductions of the ranks' own gradients, which are among the micro-batches' bounds.
  RestOfStep rest(double reduce_norm_s) const {
    RestOfStep rest = rest_;
    rest.reduce_norm_s = reduce_norm_s;
    return rest;
  }

 private:
  const bool reduces_;
  const double micro_, best_rate_, last_weight_s_;
  double whole_way_s_ = 0.0, split_way_s_ = 0.0;
  MicroBatchBounds bounds_;
  RestOfStep rest_;
};

// Makes one kind of each stage.
std::pair<KindCosts, StageKinds> apart(const StepCost& cost, std::span<const int> rank_of_stage) {
  KindCosts costs{cost.stages, {}, {}, cost.reduce_norm_s};
  StageKinds stages;
  stages.rank_of_stage.assign(rank_of_stage.begin(), rank_of_stage.end());
  for (size_t s = 0; s < cost.stages.size(); ++s) {
    const auto r = size_t(rank_of_stage[s]);
    const bool crosses = s + 1 < cost.stages.size() && rank_of_stage[s] != rank_of_stage[s + 1];
    costs.out_s.push_back(crosses ? cost.stages[s].of(InstructionKind::transfer_activation) : 0.0);
    costs.home_s.push_back(crosses ? cost.stages[s + 1].of(InstructionKind::transfer_gradient) : 0.0);
    stages.rows.resize(std::max(stages.rows.size(), r + 1));
    if (stages.rows[r].empty()) stages.places.push_back({uint16_t(r), 1, s});
    stages.rows[r].push_back(uint16_t(s));
    stages.kind_of_stage.push_back(uint16_t(s));
  }
  return {std::move(costs), std::move(stages)};
}

// Through all stages, and the links that are priced.
Way whole_way(const KindCosts& costs, const StageKinds& stages, double best_rate) {
  Way way;
  for (size_t s = 0; s < stages.kind_of_stage.size(); ++s) {
    const bool priced = s < costs.out_s.size();
    way.go_on(costs.kinds[stages.kind_of_stage[s]], priced ? costs.out_s[s] : 0.0,
              priced ? costs.home_s[s] : 0.0, best_rate);
  }
  return way;
}

LongestRank longest_rank(const Layout& layout, const KindCosts& costs, const StageKinds& stages,
                         int64_t micro_batches, double best_rate) {
  LongestRank longest(layout, costs.kinds[stages.kind_of_stage.front()], micro_batches, best_rate);
  const bool gathers = layout.gathers_after_step();
  const size_t ranks = size_t(layout.pipeline), count = stages.kind_of_stage.size();
  const bool one_chunk = count == ranks;
  // In a V the second chunk goes the other way.
  const double crossings = stages.rank_of_stage.back() == 0 ? 1.0 : double(count / ranks);
  const Way all = one_chunk ? whole_way(costs, stages, best_rate) : Way{};
  Way way;
  size_t s = 0;
  for (const StageKinds::RowPlace& place : stages.places) {
    for (; s < place.stage; ++s) {
      if (one_chunk) longest.hold(way, all, ranks - s);
      way.go_on(costs.kinds[stages.kind_of_stage[s]], costs.out_s[s], costs.home_s[s], best_rate);
      longest.send(way, std::max(costs.out_s[s], costs.home_s[s]), crossings);
    }
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
  const auto bound = [&](const Longest& longest, double held_s, double home_traffic_s) {
    return (std::max({std::max(longest.home_s, held_s) + rest.first_reduction_s + home_traffic_s,
                      longest.link_s + rest.first_reduction_s,
                      longest.there_s + rest.least_reduction_s + traffic_s,
                      longest.all_work_s / best.of_all}) +
            rest.reduce_norm_s + rest.step_end_s) *
           (1.0 - 1e-9);
  };
  return {bound(whole, 0.0, traffic_s), bound(split, 0.0, home_s), bound(whole, whole.held_s, traffic_s),
          bound(split, split.held_s, home_s)};
}

MicroBatchBounds micro_batch_bounds_s(const Layout& layout, const KindCosts& costs, const StageKinds& stages,
                                      int64_t micro_batches, const Contention::Best& best) {
  return longest_rank(layout, costs, stages, micro_batches, best.of_one).micro_batches();
}

StepBounds lower_bounds_s(const Layout& layout, const StepCost& cost, std::span<const int> rank_of_stage,
                          int64_t micro_batches, const Contention::Best& best) {
  const auto [costs, stages] = apart(cost, rank_of_stage);
  return lower_bounds_s(layout, costs, stages, micro_batches, best);
}

StepBounds lower_bounds_s(const Layout& layout, const KindCosts& costs, const StageKinds& stages,
                          int64_t micro_batches, const Contention::Best& best) {
  const LongestRank longest = longest_rank(layout, costs, stages, micro_batches, best.of_one);
  return longest.micro_batches().with(longest.rest(costs.reduce_norm_s), micro_batches, best);
}

double StepBounds::of(const ScheduleEntry& entry) const {
  if (entry.made_to_measure) return std::min(whole_s, split_s);
  if (entry.holds_one_round) return entry.splits_backward ? split_held_s : whole_held_s;
  return entry.splits_backward ? split_s : whole_s;
}

}  // namespace mpt::planner
