// SPDX-License-Identifier: Apache-2.0
#include "planner/search/evaluate.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "core/lower.h"
#include "planner/cost/step_pricer.h"
#include "planner/memory/memory_model.h"
#include "planner/search/made_to_measure.h"

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

}  // namespace

SplitModel::SplitModel(const SearchProblem& problem, const Layout& layout,
                       std::shared_ptr<const models::LayerKinds> kinds,
                       std::shared_ptr<const SplitModel> alike)
    : programs_(problem.model, layout, problem.workload.sequence, std::move(kinds)),
      pieces(programs_, alike ? &alike->pieces : nullptr),
      least_layer_bytes(pieces.least_layer_bytes()),
      parameters(pieces.parameters({0, problem.model.layers, true, true})),
      problem_(problem),
      alike_(std::move(alike)) {}

const SplitPrices& SplitModel::prices() const {
  if (!prices_) {
    prices_.emplace(problem_, programs_, alike_ ? &alike_->prices() : nullptr);
    programs_.forget();
  }
  return *prices_;
}

SplitPrices::SplitPrices(const SearchProblem& problem, models::PiecePrograms& programs,
                         const SplitPrices* alike)
    : least_layer_forward_s(std::numeric_limits<double>::infinity()) {
  const models::LayerKinds::Counts& layers = programs.kinds()->all();
  std::array<double, models::LayerKinds::kCount> least_s{};
  for (size_t pool = 0; pool < problem.pool_count(); ++pool) {
    const PieceCosts& c =
        costs.emplace_back(programs, problem.source(pool), alike != nullptr ? &alike->costs[pool] : nullptr);
    const double ends = c.embedding_least_s() + c.head_least_s();
    double& work = least_work_s.emplace_back(ends);
    std::array<double, 3>& by_recompute = least_work_by_recompute_s.emplace_back();
    by_recompute.fill(ends);
    for (size_t kind = 0; kind < layers.size(); ++kind) {
      if (layers[kind] == 0) continue;
      const double least = c.layer_least_s(kind);
      work += double(layers[kind]) * least;
      least_s[kind] = pool == 0 ? least : std::min(least_s[kind], least);
      for (const auto& [recompute, name] : EnumNames<Recompute>::table())
        by_recompute[size_t(recompute)] += double(layers[kind]) * c.layer_least_s(kind, recompute);
    }
    least_layer_forward_s = std::min(least_layer_forward_s, c.least_layer_forward_s());
  }
  for (size_t kind = 0; kind < layers.size(); ++kind) {
    if (layers[kind] > 0) layers_by_least_s.emplace_back(least_s[kind], layers[kind]);
  }
  std::sort(layers_by_least_s.begin(), layers_by_least_s.end(), std::greater<>());
}

Contention contention_of(const SearchProblem& problem, const Layout& layout) {
  return {problem.cost->rate_by_active_ranks(), layout.tensor * layout.replicas()};
}

Schedule named_schedule(const Layout& layout, int64_t micro_batches) {
  const ScheduleEntry& entry = leanest_schedule(find_schedule(layout.schedule, "layout"), int(layout.chunks));
  return entry.generate(int(layout.pipeline), int(layout.chunks), int(micro_batches));
}

namespace {

Schedule schedule_of(const SearchProblem& problem, const Estimate& e) {
  if (find_schedule(e.layout.schedule, "layout").made_to_measure) {
    ProgramCache programs;
    if (auto made = make_to_measure(problem, e.layout, e.footprints, e.cost, programs)) {
      Schedule schedule = *made->schedule;
      schedule.name = e.layout.schedule;
      return schedule;
    }
  }
  return named_schedule(e.layout, micro_batches(e.layout, problem.workload));
}

}  // namespace

StepCost cost_of(const SearchProblem& problem, const SplitModel& split, const Layout& layout,
                 std::span<const int> rank_of_stage) {
  return step_cost(devices_of(problem, split, layout), split.pieces, problem.model, layout, rank_of_stage);
}

DeviceCosts devices_of(const SearchProblem& problem, const SplitModel& split, const Layout& layout) {
  std::vector<const CostSource*> sources;
  for (size_t pool = 0; pool < problem.pool_count(); ++pool) sources.push_back(&problem.source(pool));
  return {split.prices().costs, std::move(sources), pools_of_ranks(problem, layout)};
}

Estimate estimate(const SearchProblem& problem, const Layout& layout) {
  return estimate(problem, SplitModel(problem, layout), layout);
}

Estimate estimate(const SearchProblem& problem, const SplitModel& split, const Layout& layout) {
  const ScheduleEntry& entry = find_schedule(layout.schedule, "layout");
  const std::vector<int> placement = entry.placement(int(layout.pipeline), int(layout.chunks));
  return estimate(problem, layout, models::stage_footprints(split.pieces, problem.model, layout),
                  cost_of(problem, split, layout, placement));
}

Estimate estimate(const SearchProblem& problem, const Layout& layout, std::vector<StageFootprint> footprints,
                  StepCost cost) {
  const ScheduleEntry& entry = find_schedule(layout.schedule, "layout");
  const std::vector<int> placement = entry.placement(int(layout.pipeline), int(layout.chunks));
  Estimate e{layout, std::move(footprints), std::move(cost)};
  e.bound_s = lower_bound_s(problem, layout, e.cost, entry, placement);
  const auto floors = memory_floors(layout, placement, e.footprints);
  e.floor_bytes = *std::max_element(floors.begin(), floors.end());
  return e;
}

namespace {

// Takes in rank by rank what a step takes at least.
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

double lower_bound_s(const SearchProblem& problem, const Layout& layout, const StepCost& cost,
                     const ScheduleEntry& entry, std::span<const int> rank_of_stage) {
  return lower_bounds_s(layout, cost, rank_of_stage, micro_batches(layout, problem.workload),
                        contention_of(problem, layout).best(layout.pipeline))
      .of(entry);
}

namespace {

Evaluation simulated(const SearchProblem& problem, const Estimate& e, Schedule schedule) {
  Evaluation result;
  result.schedule = std::move(schedule);
  result.program = lower(e.layout, result.schedule, e.footprints);
  result.memory = rank_memory(result.program, e.footprints);
  result.rejection = check_memory(result.memory, limits_of_ranks(problem, e.layout));
  for (const RankMemory& m : result.memory) result.peak_bytes = std::max(result.peak_bytes, m.peak_bytes);
  MPT_CHECK(e.floor_bytes <= result.peak_bytes, "{}: floor of {} bytes, peak of {}", layout_name(e.layout),
            e.floor_bytes, result.peak_bytes);
  result.durations_s = e.cost.durations(result.program);
  result.timeline = simulate(result.program, result.durations_s, contention_of(problem, e.layout));
  result.step_time_s = step_time_s(result.timeline);
  MPT_CHECK(e.bound_s <= result.step_time_s, "{}: bound of {} s, simulated {} s", layout_name(e.layout),
            e.bound_s, result.step_time_s);
  result.bubble_share = bubble_share(result.program, result.timeline);
  return result;
}

}  // namespace

Evaluation evaluate_regardless(const SearchProblem& problem, const Estimate& e) {
  return simulated(problem, e, schedule_of(problem, e));
}

Evaluation evaluate(const SearchProblem& problem, const Estimate& e) {
  Evaluation result;
  result.schedule = schedule_of(problem, e);
  result.rejection =
      check_memory(rank_memory(result.schedule, e.footprints), limits_of_ranks(problem, e.layout));
  return result.rejection ? result : simulated(problem, e, std::move(result.schedule));
}

std::optional<Rejection> exact_memory_rejection(const SearchProblem& problem, const Estimate& e) {
  return check_memory(rank_memory(schedule_of(problem, e), e.footprints), limits_of_ranks(problem, e.layout));
}

}  // namespace mpt::planner
