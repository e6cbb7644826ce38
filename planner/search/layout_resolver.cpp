// SPDX-License-Identifier: Apache-2.0
#include "planner/search/layout_resolver.h"

#include <algorithm>

#include "planner/search/balance.h"
#include "planner/search/fit_recompute.h"

namespace mpt::planner {

SharedSplit LayoutResolver::split_of(const Layout& l) {
  const SplitKey key{l.tensor,         l.context,           l.context_method, l.expert,
                     l.expert_split(), l.sequence_parallel, l.micro_batch};
  if (last_split_ && key == last_key_) return last_split_;
  SharedSplit& split = splits_[key];
  if (!split) split = std::make_shared<SplitModel>(problem_, l);
  last_key_ = key;
  last_split_ = split;
  return split;
}

// By stage: how much slower its devices are than the first group's, or how much less they hold than the
// largest. Empty where all are alike.
std::vector<double> LayoutResolver::slowness(const Layout& layout, StageSplit split) {
  if (problem_.pools.empty()) return {};
  const std::vector<PoolMask> masks = pools_of_ranks(problem_, layout);
  const std::vector<int64_t> limits = limits_of_ranks(problem_, layout);
  const std::vector<double>& work_s = split_of(layout)->least_work_s;
  std::vector<double> slowness;
  for (const int rank :
       find_schedule(layout.schedule, "layout").placement(int(layout.pipeline), int(layout.chunks))) {
    const auto r = size_t(rank);
    double slowest = double(problem_.memory_limit_bytes) / double(limits[r]);
    if (split == StageSplit::balanced) {
      slowest = 0.0;
      for (size_t pool = 0; pool < work_s.size(); ++pool) {
        if (masks[r] >> pool & 1) slowest = std::max(slowest, work_s[pool] / work_s.front());
      }
    }
    slowness.push_back(slowest);
  }
  return slowness;
}

const std::vector<int64_t>& LayoutResolver::balanced(const Layout& layout, StageSplit stage_split) {
  const SharedSplit split = split_of(layout);
  std::vector<double> slowness = this->slowness(layout, stage_split);
  auto& counts = balanced_[{split.get(), layout.stages(), slowness}];
  if (!counts.empty()) return counts;
  const PieceCosts& costs = split->costs.front();
  std::vector<double> layer_s;
  for (int64_t l = 0; l < problem_.model.layers; ++l)
    layer_s.push_back(costs.layer_round_trip_s(l, Recompute::none));
  counts = balanced_stages(layer_s, costs.embedding_round_trip_s(), costs.head_round_trip_s(),
                           layout.stages(), slowness);
  return counts;
}

Layout LayoutResolver::layout(const Family& family, const Member& member) {
  Layout layout = layout_of(problem_, family, member);
  if (member.split != StageSplit::even) layout.layers_per_stage = balanced(layout, member.split);
  if (member.recompute == RecomputeChoice::fitted) layout.recompute = Recompute::none;
  return layout;
}

bool LayoutResolver::is_twin(const Member& member, const Layout& layout) {
  if (member.split == StageSplit::even) return false;
  if (layout.layers_per_stage == even_stages(problem_.model.layers, layout.stages())) return true;
  return member.split == StageSplit::by_memory &&
         layout.layers_per_stage == balanced(layout, StageSplit::balanced);
}

LayoutResolver::Fit LayoutResolver::fit(Layout& layout, bool with_transfer_buffers) {
  layout.recompute = Recompute::full;
  layout.recomputed_layers.clear();
  const auto made = with_transfer_buffers ? program(layout) : nullptr;
  const std::span<const StageSlots> slots = made ? std::span(made->slots) : std::span<const StageSlots>();
  const auto counts = fit_recompute(problem_, *split_of(layout), layout, *peaks(layout), slots);
  if (!counts) return Fit::over_memory;
  const bool none = std::all_of(counts->begin(), counts->end(), [](int64_t n) { return n == 0; });
  layout.recomputed_layers = *counts;
  return none || layout.recomputed_layers == layout.layers_per_stage ? Fit::twin : Fit::some_layers;
}

std::shared_ptr<const ActivationPeaks> LayoutResolver::peaks(const Layout& layout) {
  return programs_.peaks(layout, micro_batches(layout, problem_.workload));
}

std::shared_ptr<const OrderBound> LayoutResolver::order(const Layout& layout) {
  return programs_.order(layout, micro_batches(layout, problem_.workload));
}

std::shared_ptr<const StepProgram> LayoutResolver::program(const Layout& layout) {
  return programs_.program(layout, micro_batches(layout, problem_.workload), problem_.model.tied_embeddings);
}

std::vector<Layout> enumerate_layouts(const SearchProblem& problem) {
  LayoutResolver resolver(problem);
  std::vector<Layout> layouts;
  visit_families(problem, [&](const Family& family) {
    for (const Member& member : members_of(problem, family)) {
      Layout layout = resolver.layout(family, member);
      if (resolver.is_twin(member, layout)) continue;
      const bool open = member.recompute == RecomputeChoice::fitted;
      if (open && resolver.fit(layout, true) == LayoutResolver::Fit::twin) continue;
      layouts.push_back(std::move(layout));
    }
  });
  return layouts;
}

}  // namespace mpt::planner
