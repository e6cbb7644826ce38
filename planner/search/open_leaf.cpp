// SPDX-License-Identifier: Apache-2.0
#include "planner/search/open_leaf.h"

namespace mpt::planner {

OpenLeaf::OpenLeaf(const SearchProblem& problem, LayoutResolver& resolver, const StageKinds& stages,
                   Layout& layout, bool all_fit)
    : problem_(problem),
      resolver_(resolver),
      split_(resolver.prices().split(layout)),
      stages_(stages),
      layout_(layout),
      all_fit_(all_fit),
      states_(resolver.prices().sharding(layout).states),
      devices_(devices_of(problem, split_, layout)) {}

FitOutcome OpenLeaf::fit(double incumbent_s) {
  if (outcome_) return *outcome_;
  const auto too_slow = [&](std::span<const int64_t> recomputed_layers) {
    return all_fit_ && first_rank_s(recomputed_layers) > incumbent_s;
  };
  outcome_ = resolver_.fit(problem_, layout_, stages_, all_fit_, too_slow);
  return *outcome_;
}

double OpenLeaf::first_rank_s(std::span<const int64_t> recomputed_layers) const {
  // A pipeline of this rank alone: nothing is waited for, and the first stage is its own.
  StageKinds first;
  first.places = {{0, 1, 0}};
  first.row_of_rank = {0};
  std::vector<uint16_t>& row = first.rows.emplace_back();
  for (size_t s = 0; s < stages_.kind_of_stage.size(); ++s) {
    if (stages_.rank_of_stage[s] != stages_.rank_of_stage.front()) continue;
    const uint16_t own = stages_.kind_of_stage[s];
    StageKind kind = devices_.pieces.front().kind(stages_.contents[own], recomputed_layers[s]);
    kind.devices = stages_.kinds[own].devices;
    const auto alike = std::find(first.kinds.begin(), first.kinds.end(), kind);
    row.push_back(uint16_t(alike - first.kinds.begin()));
    if (alike == first.kinds.end()) first.kinds.push_back(kind);
  }
  first.kind_of_stage = row;
  first.rank_of_stage.assign(row.size(), 0);
  return bound_s(first);
}

double OpenLeaf::bound_s() const { return bound_s(stage_kinds(devices_, layout_, stages_.rank_of_stage)); }

double OpenLeaf::bound_s(const StageKinds& stages) const {
  KindCosts costs;
  StepPricer(devices_, split_.pieces, problem_.model, layout_, StepPricer::Part::whole_step, &states_)
      .price(stages, Recompute::full, costs);
  return lower_bounds_s(layout_, costs, stages, micro_batches(layout_, problem_.workload),
                        contention_of(problem_, layout_).best(layout_.pipeline))
      .of(find_schedule(layout_.schedule, "layout"));
}

}  // namespace mpt::planner
