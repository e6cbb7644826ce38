// SPDX-License-Identifier: Apache-2.0
#include "planner/search/inner_bound.h"

#include "planner/search/space.h"

namespace mpt::planner {
namespace {

template <class F>
double least_of_pools(const SearchProblem& problem, F&& seconds) {
  double least = seconds(problem.source(0));
  for (size_t pool = 1; pool < problem.pool_count(); ++pool)
    least = std::min(least, seconds(problem.source(pool)));
  return least;
}

// What ZeRO 2 and 3 add to the micro-batches of all ranks together, where compute hides as much as it can:
// one message of everything takes no longer than its parts.
double ranks_share_of_sharding_s(const Layout& layout, const SplitModel& split, double micro,
                                 const CostSource& source) {
  if (layout.zero_of_micro_batch() < 2) return 0.0;
  const models::ParameterShare head = split.pieces.gathered_with_head(layout, false);
  const ShardedTraffic traffic = sharded_traffic(layout, split.parameters, head, source);
  const double least =
      std::min(source.constants().collective_overlap_share, source.constants().network_overlap_share);
  const auto shown = [least](double seconds, bool overlap) { return overlap ? least * seconds : seconds; };
  return micro * (shown(traffic.forward_s + traffic.backward_s, layout.overlap_parameter_gather) +
                  shown(traffic.scatter_s, layout.overlap_gradient_reduce));
}

// The rank that owns most owns an even share or more.
double optimizer_s(const SearchProblem& problem, const Layout& layout, const models::ParameterShare& share) {
  const auto owned = share.dense / models::dense_shard(layout) + share.expert / models::expert_shard(layout);
  const auto even = models::updated_like_adamw(layout, int64_t(double(owned) / double(layout.pipeline)));
  return least_of_pools(problem, [&](const CostSource& source) {
    return layout.offload_optimizer ? source.offloaded_optimizer_s(even) : source.optimizer_s(even);
  });
}

// Layers are whole: of n layers of at least some time, one rank holds n / ranks, rounded up. The rank with
// the head takes that number of them at which the slower of it and of the fullest other rank is fastest.
double fullest_rank_s(const SplitModel& split, int64_t ranks) {
  const SplitPrices& prices = split.prices();
  double most = 0.0;
  int64_t count = 0;
  for (const auto& [seconds, layers] : prices.layers_by_least_s) {
    count += layers;
    double least = prices.least_head_s + double(count) * seconds;
    for (int64_t here = 0; ranks > 1 && here < count; ++here) {
      const double with_head_s = prices.least_head_s + double(here) * seconds;
      if (with_head_s >= least) break;
      const int64_t elsewhere = (count - here + ranks - 2) / (ranks - 1);
      least = std::min(least, std::max(with_head_s, double(elsewhere) * seconds));
    }
    most = std::max(most, least);
  }
  return most;
}

// Work of one micro-batch on a rank, and number of stages below the rank. Both are averaged over the ranks
// with weights that make the division of the work cancel out: 1 / (time of the whole model on the rank's
// devices). The slowest rank is no faster. `work_s`: of the whole model, by pool. `share`: of the model, with
// each piece on the devices that are best at it (SplitPrices::least_share).
std::pair<double, double> average_rank(const SearchProblem& problem, const Layout& layout,
                                       std::span<const double> work_s, double share) {
  const auto ranks = double(layout.pipeline);
  if (problem.pools.empty()) return {work_s.front() / ranks, 0.5 * (ranks - 1.0)};
  double weights = 0.0, place = 0.0;
  const std::vector<PoolMask> masks = pools_of_ranks(problem, layout);
  for (size_t r = 0; r < masks.size(); ++r) {
    double slowest_s = 0.0;
    for (size_t pool = 0; pool < work_s.size(); ++pool)
      if (masks[r] >> pool & 1) slowest_s = std::max(slowest_s, work_s[pool]);
    weights += 1.0 / slowest_s;
    place += double(r) / slowest_s;
  }
  return {share / weights, place / weights};
}

// A micro-batch is launched forward and backward on every rank, on the devices that are quickest at it.
double launches_s(const SearchProblem& problem, const Layout& layout) {
  return 2.0 * double(micro_batches(layout, problem.workload)) *
         least_of_pools(problem, [](const CostSource& source) { return source.dispatch_s(); });
}

// Micro-batches alone: work, and waiting for it.
double work_bound_s(const SearchProblem& problem, const Layout& layout, const SplitModel& split,
                    std::span<const double> work_s, double share) {
  const auto ranks = double(layout.pipeline);
  const auto micro = double(micro_batches(layout, problem.workload));
  const auto [best_rate, best_total_rate] = contention_of(problem, layout).best(layout.pipeline);
  // Rank r waits for r stages of at least one layer's forward each; the ranks' average is bounded by the
  // slowest.
  const auto [average_s, stages_below] = average_rank(problem, layout, work_s, share);
  const double filling = stages_below * split.prices().least_layer_forward_s / best_rate;
  const double launches = launches_s(problem, layout);
  const double work = micro * average_s + launches;
  return std::max({filling + work / best_rate, work * ranks / best_total_rate,
                   (micro * fullest_rank_s(split, layout.pipeline) + launches) / best_rate,
                   split.prices().least_way_s / best_rate});
}

// Where gradients come late, a step may end with its state alone.
double floor_bytes(const Layout& layout, const SplitModel& split) {
  const double layer = models::makes_gradients_late(layout) ? 0.0 : double(split.least_layer_bytes);
  return double(models::least_state_bytes(layout, split.parameters)) / double(layout.pipeline) + layer;
}

}  // namespace

InnerBound sharding_bound(const SearchProblem& problem, const Layout& layout, const SplitModel& split) {
  const auto ranks = double(layout.pipeline);
  const auto micro = double(micro_batches(layout, problem.workload));
  const models::ParameterShare& share = split.parameters;
  InnerBound bound;
  bound.memory_limit_bytes = double(problem.memory_limit_bytes);
  const double sharding = least_of_pools(problem, [&](const CostSource& source) {
    return ranks_share_of_sharding_s(layout, split, micro, source) / ranks;
  });
  bound.step_end_s = optimizer_s(problem, layout, share) * (1.0 - 1e-9);
  const SplitPrices& prices = split.prices();
  const double work_s =
      work_bound_s(problem, layout, split, prices.least_work_s, prices.least_share) + sharding;
  bound.bound_s = work_s * (1.0 - 1e-9) + bound.step_end_s;
  bound.floor_bytes = floor_bytes(layout, split);
  return bound;
}

UnpricedBounds::UnpricedBounds(const SearchProblem& problem, const Layout& degrees, const SplitModel& split) {
  const SplitPrices& prices = split.prices();
  for (size_t r = 0; r < of_one_chunk_s_.size(); ++r) {
    const auto work_s =
        mapped<double>(prices.least_work_by_recompute_s, [r](const auto& by) { return by[r]; });
    of_one_chunk_s_[r] =
        work_bound_s(problem, degrees, split, work_s, prices.least_share_by_recompute[r]) * (1.0 - 1e-9);
  }
  launches_s_ = launches_s(problem, degrees) * (1.0 - 1e-9);
}

InnerBound degrees_bound(const SearchProblem& problem, const Layout& degrees, const SplitModel& split) {
  const models::ParameterShare& share = split.parameters;
  Layout most = with_sharding(degrees, {3, degrees.replicas(), false});
  const double on_device_s = optimizer_s(problem, most, share);
  most.offload_optimizer = true;
  InnerBound bound;
  bound.memory_limit_bytes = double(problem.memory_limit_bytes);
  bound.floor_bytes = floor_bytes(most, split);
  // What does not fit need not be priced.
  if (bound.is_too_large()) return bound;
  const double step_end_s = std::min(on_device_s, optimizer_s(problem, most, share));
  bound.bound_s =
      (work_bound_s(problem, degrees, split, split.prices().least_work_s, split.prices().least_share) +
       step_end_s) *
      (1.0 - 1e-9);
  return bound;
}

}  // namespace mpt::planner
