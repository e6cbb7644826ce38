// SPDX-License-Identifier: Apache-2.0
#include "planner/search/layout_resolver.h"

namespace mpt::planner {

// By stage: how much slower its devices are than the first group's, or how much less they hold than the
// largest. Empty where all are alike.
std::vector<double> LayoutResolver::slowness(const Layout& node, const Leaf& leaf, StageSplit split) {
  if (problem_.pools.empty()) return {};
  const std::vector<PoolMask> masks = pools_of_ranks(problem_, node);
  const std::vector<int64_t> limits = limits_of_ranks(problem_, node);
  const std::vector<double>& work_s = prices_.split(node).prices().least_work_s;
  std::vector<double> slowness;
  for (const int rank : placement_of(node, leaf)) {
    const auto r = size_t(rank);
    double slowest = double(problem_.memory_limit_bytes) / double(limits[r]);
    if (split == StageSplit::balanced) {
      slowest = 0.0;
      for (size_t pool = 0; pool < work_s.size(); ++pool)
        if (masks[r] >> pool & 1) slowest = std::max(slowest, work_s[pool] / work_s.front());
    }
    slowness.push_back(slowest);
  }
  return slowness;
}

Division LayoutResolver::even(const Layout& node, const Leaf& leaf) {
  return prices_.even(node.pipeline * leaf.chunks);
}

// All layouts below a node of degrees have its stages, though their prices and limits depend on more.
Division LayoutResolver::balanced(const Layout& node, const Leaf& leaf, StageSplit split) {
  const bool as_degrees = node.zero == 0 && !node.offload_optimizer && node.chunks == 1;
  if (!as_degrees && (!problem_.pools.empty() || is_narrow(node.precision))) {
    Layout degrees = with_sharding(node, {});
    degrees.chunks = 1;
    degrees.schedule = Layout{}.schedule;
    return balanced(degrees, leaf, split);
  }
  return prices_.balanced(prices_.split(node), node.pipeline * leaf.chunks, slowness(node, leaf, split));
}

Division LayoutResolver::division(const Layout& node, const Leaf& leaf) {
  return leaf.split == StageSplit::even ? even(node, leaf) : balanced(node, leaf, leaf.split);
}

bool LayoutResolver::is_duplicate(const Layout& node, const Leaf& leaf, Division division) {
  if (leaf.split == StageSplit::even) return false;
  if (division == even(node, leaf)) return true;
  return leaf.split == StageSplit::by_memory && division == balanced(node, leaf, StageSplit::balanced);
}

const StageKinds* LayoutResolver::stages(const Layout& node, const Leaf& leaf) {
  const Division division = this->division(node, leaf);
  return is_duplicate(node, leaf, division) ? nullptr : &prices_.stages(node, leaf, division);
}

Layout LayoutResolver::layout(const Layout& node, const Leaf& leaf) {
  Layout layout = with_leaf(problem_, node, leaf);
  layout.layers_per_stage = *division(node, leaf);
  if (leaf.recompute == RecomputeChoice::fitted) layout.recompute = Recompute::none;
  return layout;
}

FitOutcome LayoutResolver::fit(const SearchProblem& problem, Layout& layout, const StageKinds& stages,
                               bool all_fit, const std::function<bool(std::span<const int64_t>)>& too_slow) {
  return fit_recompute(problem, prices_.split(layout), layout, stages, *peaks(layout), all_fit, too_slow);
}

std::vector<StageFootprint> LayoutResolver::footprints(const Layout& layout) {
  return models::stage_footprints(prices_.split(layout).pieces, problem_.model, layout);
}

StepCost LayoutResolver::cost(const Layout& layout, const Leaf& leaf) {
  const SplitModel& split = prices_.split(layout);
  const DeviceCosts devices = devices_of(problem_, split, layout);
  StepPricer pricer(devices, split.pieces, problem_.model, layout, StepPricer::Part::whole_step,
                    &prices_.sharding(layout).states);
  StepCost cost;
  // What is shared knows nothing of fitted recompute.
  if (layout.recomputed_layers.empty())
    pricer.price(*stages(layout, leaf), layout.recompute, cost);
  else
    pricer.price(stage_kinds(devices, layout, placement_of(layout, leaf)), layout.recompute, cost);
  return cost;
}

std::shared_ptr<const ActivationPeaks> LayoutResolver::peaks(const Layout& layout) {
  return programs_.peaks(layout, micro_batches(layout, problem_.workload));
}

SlowPaths& LayoutResolver::slow_paths(const Layout& layout) {
  return programs_.slow_paths(layout, micro_batches(layout, problem_.workload),
                              models::trains_shared_table(problem_.model, layout));
}

}  // namespace mpt::planner
