// SPDX-License-Identifier: Apache-2.0
#include "planner/search/split_model.h"

namespace mpt::planner {

SplitModel::SplitModel(const SearchProblem& problem, const Layout& layout,
                       std::shared_ptr<const models::LayerKinds> kinds, const SplitModel* alike)
    : programs_(problem.model, layout, problem.workload.sequence, std::move(kinds)),
      pieces(programs_, alike != nullptr ? &alike->pieces : nullptr),
      least_layer_bytes(pieces.least_layer_bytes()),
      parameters(pieces.parameters({0, problem.model.layers.count(), true, true})),
      problem_(problem),
      alike_(alike) {}

const SplitPrices& SplitModel::prices() const {
  if (!prices_) {
    prices_.emplace(problem_, programs_, alike_ != nullptr ? &alike_->prices() : nullptr);
    programs_.forget();
  }
  return *prices_;
}

SplitPrices::SplitPrices(const SearchProblem& problem, models::PiecePrograms& programs,
                         const SplitPrices* alike) {
  const models::KindCounts& layers = programs.kinds()->all();
  for (size_t pool = 0; pool < problem.pool_count(); ++pool) {
    const PieceCosts& c =
        costs.emplace_back(programs, problem.source(pool), alike != nullptr ? &alike->costs[pool] : nullptr);
    const double ends = c.embedding_least_s() + c.head_least_s();
    double& work = least_work_s.emplace_back(ends);
    std::array<double, 3>& by_recompute = least_work_by_recompute_s.emplace_back();
    by_recompute.fill(ends);
    for (size_t kind = 0; kind < layers.size(); ++kind) {
      work += double(layers[kind]) * c.layer_least_s(kind);
      for (size_t r = 0; r < by_recompute.size(); ++r)
        by_recompute[r] += double(layers[kind]) * c.layer_least_s(kind, Recompute(r));
    }
  }
  // `seconds` or shares of one piece.
  const auto least = [&](auto&& seconds) {
    double least = seconds(size_t{0});
    for (size_t pool = 1; pool < costs.size(); ++pool) least = std::min(least, seconds(pool));
    return least;
  };
  const auto of_all = [&](auto&& embedding, auto&& head, auto&& layer) {
    double sum = least(embedding) + least(head);
    for (size_t kind = 0; kind < layers.size(); ++kind)
      sum += double(layers[kind]) * least([&](size_t pool) { return layer(pool, kind); });
    return sum;
  };
  const auto share = [&](auto&& work, auto&& layer) {
    return of_all([&](size_t pool) { return costs[pool].embedding_least_s() / work(pool); },
                  [&](size_t pool) { return costs[pool].head_least_s() / work(pool); },
                  [&](size_t pool, size_t kind) { return layer(pool, kind) / work(pool); });
  };
  least_share = share([&](size_t pool) { return least_work_s[pool]; },
                      [&](size_t pool, size_t kind) { return costs[pool].layer_least_s(kind); });
  for (size_t r = 0; r < least_share_by_recompute.size(); ++r)
    least_share_by_recompute[r] =
        share([&](size_t pool) { return least_work_by_recompute_s[pool][r]; },
              [&](size_t pool, size_t kind) { return costs[pool].layer_least_s(kind, Recompute(r)); });
  least_layer_forward_s = least([&](size_t pool) { return costs[pool].least_layer_forward_s(); });
  least_head_s = least([&](size_t pool) { return costs[pool].head_least_s(); });
  least_way_s = of_all([&](size_t pool) { return costs[pool].embedding_way_s(); },
                       [&](size_t pool) { return costs[pool].head_way_s(); },
                       [&](size_t pool, size_t kind) { return costs[pool].layer_way_s(kind); });
  const auto nothing = [](size_t) { return 0.0; };
  least_work_without_experts_s = of_all(
      nothing, nothing, [&](size_t pool, size_t kind) { return costs[pool].layer_without_experts_s(kind); });
  for (size_t kind = 0; kind < layers.size(); ++kind)
    layers_by_least_s.emplace_back(least([&](size_t pool) { return costs[pool].layer_least_s(kind); }),
                                   layers[kind]);
  std::sort(layers_by_least_s.begin(), layers_by_least_s.end(), std::greater<>());
}

StepCost cost_of(const SearchProblem& problem, const SplitModel& split, const Layout& layout,
                 std::span<const int> rank_of_stage) {
  return step_cost(devices_of(problem, split, layout), split.pieces, problem.model, layout, rank_of_stage);
}

DeviceCosts devices_of(const SearchProblem& problem, const SplitModel& split, const Layout& layout) {
  std::vector<const CostSource*> sources;
  for (size_t pool = 0; pool < problem.pool_count(); ++pool) sources.push_back(&problem.source(pool));
  return {split.prices().costs, std::move(sources), pools_of_ranks(problem, layout)};
}

Contention contention_of(const SearchProblem& problem, const Layout& layout) {
  return {problem.cost->rate_by_active_ranks(), layout.tensor * layout.replicas()};
}

}  // namespace mpt::planner
