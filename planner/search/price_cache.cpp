// SPDX-License-Identifier: Apache-2.0
#include "planner/search/price_cache.h"

namespace mpt::planner {

const SplitModel& PriceCache::split(const Layout& l) {
  // The layers after the head have a copy of the embedding if that is on another rank.
  const bool copies_embedding = problem_.model.next_token_layers > 0 && l.pipeline > 1;
  const SplitKey key{l.tensor,         l.context,           l.expert,        l.expert_split(), l.micro_batch,
                     l.context_method, l.sequence_parallel, copies_embedding};
  if (last_split_ != nullptr && key == last_key_) return *last_split_;
  if (last_split_ != nullptr) last_split_->forget_programs();
  std::unique_ptr<const SplitModel>& split = splits_[key];
  if (!split) {
    SplitKey dense = key;
    dense.expert = dense.expert_split = 0;
    dense.copies_embedding = false;
    const SplitModel*& alike = dense_splits_[dense];
    split = std::make_unique<const SplitModel>(problem_, l, kinds_, alike);
    if (alike == nullptr) alike = split.get();
  }
  last_key_ = key;
  last_split_ = split.get();
  return *split;
}

ShardingPrices& PriceCache::sharding(const Layout& l) {
  return shardings_[{l.tensor, l.context, l.pipeline, l.data, l.expert, l.expert_split(), l.zero, l.shard,
                     l.order, l.offload_optimizer}];
}

Division PriceCache::even(int64_t stages) {
  Division& known = division_of_[{nullptr, stages, {}}];
  if (known == nullptr) known = &*divisions_.insert(even_stages(problem_.model.layers.count(), stages)).first;
  return known;
}

Division PriceCache::balanced(const SplitModel& split, int64_t stages, const std::vector<double>& slowness) {
  Division& known = division_of_[{&split, stages, slowness}];
  if (known != nullptr) return known;
  const PieceCosts& costs = split.prices().costs.front();
  std::vector<double> layer_s;
  for (int64_t l = 0; l < problem_.model.layers.count(); ++l)
    layer_s.push_back(costs.layer_round_trip_s(l, Recompute::none));
  known = &*divisions_
                .insert(balanced_stages(layer_s, costs.embedding_round_trip_s(), costs.head_round_trip_s(),
                                        stages, slowness))
                .first;
  return known;
}

const StageKinds& PriceCache::stages(const Layout& layout, const Leaf& leaf, Division division) {
  std::vector<PoolMask> pools;
  if (!problem_.pools.empty()) pools = pools_of_ranks(problem_, layout);
  StageKinds& known = stages_[{division, layout.pipeline, in_rounds(leaf), std::move(pools)}];
  if (!known.kinds.empty()) return known;
  Layout divided = with_leaf(problem_, layout, leaf);
  divided.layers_per_stage = *division;
  if (leaf.recompute == RecomputeChoice::fitted) divided.recompute = Recompute::none;
  known = stage_kinds(devices_of(problem_, split(layout), layout), divided, placement_of(layout, leaf));
  return known;
}

}  // namespace mpt::planner
