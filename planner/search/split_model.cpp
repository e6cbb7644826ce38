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
                         const SplitPrices* alike)
    : least_layer_forward_s(std::numeric_limits<double>::infinity()),
      least_head_s(least_layer_forward_s),
      least_way_s(least_layer_forward_s),
      least_work_without_experts_s(least_layer_forward_s) {
  const models::KindCounts& layers = programs.kinds()->all();
  std::vector<double> least_s(layers.size(), 0.0);
  for (size_t pool = 0; pool < problem.pool_count(); ++pool) {
    const PieceCosts& c =
        costs.emplace_back(programs, problem.source(pool), alike != nullptr ? &alike->costs[pool] : nullptr);
    const double ends = c.embedding_least_s() + c.head_least_s();
    double& work = least_work_s.emplace_back(ends);
    std::array<double, 3>& by_recompute = least_work_by_recompute_s.emplace_back();
    by_recompute.fill(ends);
    for (size_t kind = 0; kind < layers.size(); ++kind) {
      const double least = c.layer_least_s(kind);
      work += double(layers[kind]) * least;
      least_s[kind] = pool == 0 ? least : std::min(least_s[kind], least);
      for (const auto& [recompute, name] : EnumNames<Recompute>::table())
        by_recompute[size_t(recompute)] += double(layers[kind]) * c.layer_least_s(kind, recompute);
    }
    least_layer_forward_s = std::min(least_layer_forward_s, c.least_layer_forward_s());
    least_head_s = std::min(least_head_s, c.head_least_s());
    least_way_s = std::min(least_way_s, c.least_way_s());
    least_work_without_experts_s = std::min(least_work_without_experts_s, c.least_work_without_experts_s());
  }
  for (size_t kind = 0; kind < layers.size(); ++kind)
    layers_by_least_s.emplace_back(least_s[kind], layers[kind]);
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
