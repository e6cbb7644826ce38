// SPDX-License-Identifier: Apache-2.0
#include "planner/search/layout_resolver.h"

#include <algorithm>

#include "planner/search/balance.h"

namespace mpt::planner {

size_t LayoutResolver::SplitHash::operator()(const SplitKey& key) const {
  uint64_t hash =
      uint64_t(key.context_method) * 4 + uint64_t(key.sequence_parallel) * 2 + uint64_t(key.copies_embedding);
  for (const int64_t degree : {key.tensor, key.context, key.expert, key.expert_split, key.micro_batch})
    hash = (hash ^ (hash >> 29) ^ uint64_t(degree)) * 0x9e3779b97f4a7c15;  // 2^64 / golden ratio
  return hash ^ (hash >> 32);
}

SharedSplit LayoutResolver::split_of(const Layout& l) {
  // The layers behind the head have a copy of the embedding where that lies on another rank.
  const bool copies_embedding = problem_.model.next_token_layers > 0 && l.pipeline > 1;
  const SplitKey key{l.tensor,         l.context,           l.expert,        l.expert_split(), l.micro_batch,
                     l.context_method, l.sequence_parallel, copies_embedding};
  if (last_split_ && key == last_key_) return last_split_;
  if (last_split_) last_split_->forget_programs();
  SharedSplit& split = splits_[key];
  if (!split) {
    SharedSplit& alike =
        but_for_experts_[{l.tensor, l.context, l.context_method, l.sequence_parallel, l.micro_batch}];
    split = std::make_shared<SplitModel>(problem_, l, kinds_, alike);
    if (!alike) alike = split;
  }
  last_key_ = key;
  last_split_ = split;
  return split;
}

LayoutResolver::KnownSharding& LayoutResolver::sharding_of(const Layout& l) {
  return sharding_[{l.tensor, l.context, l.pipeline, l.data, l.expert, l.expert_split(), int64_t(l.order),
                    l.zero, l.shard, int64_t(l.offload_optimizer)}];
}

namespace {

std::vector<int> placement_of(const Layout& layout, const Member& member) {
  return schedule_catalog()[member.schedule].placement(int(layout.pipeline), int(member.chunks));
}

}  // namespace

// By stage: how much slower its devices are than the first group's, or how much less they hold than the
// largest. Empty where all are alike.
std::vector<double> LayoutResolver::slowness(const Layout& layout, const Member& member, StageSplit split) {
  if (problem_.pools.empty()) return {};
  const std::vector<PoolMask> masks = pools_of_ranks(problem_, layout);
  const std::vector<int64_t> limits = limits_of_ranks(problem_, layout);
  const std::vector<double>& work_s = split_of(layout)->prices().least_work_s;
  std::vector<double> slowness;
  for (const int rank : placement_of(layout, member)) {
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

LayoutResolver::Division LayoutResolver::even(const Layout& layout, const Member& member) {
  const int64_t stages = layout.pipeline * member.chunks;
  Division& known = even_[stages];
  if (known == nullptr) known = &*divisions_.insert(even_stages(problem_.model.layers, stages)).first;
  return known;
}

LayoutResolver::Division LayoutResolver::balanced(const Layout& layout, const Member& member,
                                                  StageSplit stage_split) {
  const SharedSplit split = split_of(layout);
  const int64_t stages = layout.pipeline * member.chunks;
  std::vector<double> slowness = this->slowness(layout, member, stage_split);
  Division& known = balanced_[{split.get(), stages, slowness}];
  if (known != nullptr) return known;
  const PieceCosts& costs = split->prices().costs.front();
  std::vector<double> layer_s;
  for (int64_t l = 0; l < problem_.model.layers; ++l)
    layer_s.push_back(costs.layer_round_trip_s(l, Recompute::none));
  known = &*divisions_
                .insert(balanced_stages(layer_s, costs.embedding_round_trip_s(), costs.head_round_trip_s(),
                                        stages, slowness))
                .first;
  return known;
}

LayoutResolver::Division LayoutResolver::division(const Layout& layout, const Member& member) {
  return member.split == StageSplit::even ? even(layout, member) : balanced(layout, member, member.split);
}

bool LayoutResolver::is_twin(const Layout& layout, const Member& member, Division division) {
  if (member.split == StageSplit::even) return false;
  if (division == even(layout, member)) return true;
  return member.split == StageSplit::by_memory && division == balanced(layout, member, StageSplit::balanced);
}

bool LayoutResolver::is_twin(const Layout& layout, const Member& member) {
  return is_twin(layout, member, division(layout, member));
}

const StageKinds* LayoutResolver::stages(const Layout& layout, const Member& member) {
  const Division division = this->division(layout, member);
  if (is_twin(layout, member, division)) return nullptr;
  std::vector<PoolMask> masks;
  if (!problem_.pools.empty()) masks = pools_of_ranks(problem_, layout);
  StageKinds& known = stages_[{division, layout.pipeline, in_rounds(member), std::move(masks)}];
  if (!known.kinds.empty()) return &known;
  known = stage_kinds(devices_of(problem_, *split_of(layout), layout), this->layout({layout}, member),
                      placement_of(layout, member));
  return &known;
}

Layout LayoutResolver::layout(const Family& family, const Member& member) {
  Layout layout = layout_of(problem_, family, member);
  layout.layers_per_stage = *division(family.layout, member);
  if (member.recompute == RecomputeChoice::fitted) layout.recompute = Recompute::none;
  return layout;
}

LayoutResolver::Fit LayoutResolver::fit(Layout& layout, const StageKinds& stages, bool all_fit,
                                        const FirstRankIsTooSlow& too_slow) {
  layout.recompute = Recompute::full;
  layout.recomputed_layers.clear();
  auto [known, counts] =
      fit_recompute(problem_, *split_of(layout), layout, stages, *peaks(layout), all_fit, too_slow);
  if (known == FittedRecompute::Known::over_memory) return Fit::over_memory;
  if (known == FittedRecompute::Known::too_slow) return Fit::too_slow;
  const bool none = std::all_of(counts.begin(), counts.end(), [](int64_t n) { return n == 0; });
  layout.recomputed_layers = std::move(counts);
  return none || layout.recomputed_layers == layout.layers_per_stage ? Fit::twin : Fit::some_layers;
}

std::vector<StageFootprint> LayoutResolver::footprints(const Layout& layout) {
  return models::stage_footprints(split_of(layout)->pieces, problem_.model, layout);
}

StepCost LayoutResolver::cost(const Layout& layout, const Member& member) {
  const SharedSplit split = split_of(layout);
  const DeviceCosts devices = devices_of(problem_, *split, layout);
  StepPricer pricer(devices, split->pieces, problem_.model, layout, StepPricer::Part::whole_step,
                    &sharding_of(layout).states);
  StepCost cost;
  // What is shared knows nothing of fitted recompute.
  if (layout.recomputed_layers.empty()) {
    pricer.price(*stages(layout, member), layout.recompute, cost);
  } else {
    pricer.price(stage_kinds(devices, layout, placement_of(layout, member)), layout.recompute, cost);
  }
  return cost;
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
      const StageKinds* stages = resolver.stages(family.layout, member);
      if (stages == nullptr) continue;
      Layout layout = resolver.layout(family, member);
      const bool open = member.recompute == RecomputeChoice::fitted;
      if (open && resolver.fit(layout, *stages) == LayoutResolver::Fit::twin) continue;
      layouts.push_back(std::move(layout));
    }
  });
  return layouts;
}

}  // namespace mpt::planner
