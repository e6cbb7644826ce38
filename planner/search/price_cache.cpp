// SPDX-License-Identifier: Apache-2.0
#include "planner/search/price_cache.h"

#include <numeric>

namespace mpt::planner {
namespace {

struct Filling {
  double slowest_s = 0.0;
  double next_limit_s = std::numeric_limits<double>::infinity();  // any limit below fills alike
};

// Fills stages from the last to the first, each up to `limit_s` and leaving a layer for every stage before
// it.
Filling fill(std::span<const double> layer_s, double before_s, double after_s,
             std::span<const double> slowness, double limit_s, std::vector<int64_t>& counts) {
  const auto stages = int64_t(counts.size());
  auto left = int64_t(layer_s.size());
  Filling filling;
  for (int64_t s = stages - 1; s >= 0; --s) {
    double work = (s == stages - 1 ? after_s : 0.0) + (s == 0 ? before_s : 0.0);
    const double times = slowness.empty() ? 1.0 : slowness[size_t(s)];
    int64_t count = 0;
    while (left > s) {
      const double next = layer_s[size_t(left - 1)];
      // The first stage takes what is left; every other one at least a layer.
      if (s > 0 && count > 0 && times * (work + next) > limit_s) {
        filling.next_limit_s = std::min(filling.next_limit_s, times * (work + next));
        break;
      }
      work += next;
      --left;
      ++count;
    }
    counts[size_t(s)] = count;
    filling.slowest_s = std::max(filling.slowest_s, times * work);
  }
  return filling;
}

}  // namespace

PriceCache::SplitKey PriceCache::key_of(const Layout& l) const {
  // The layers after the head have a copy of the embedding if that is on another rank.
  const bool copies_embedding = problem_.model.next_token_layers > 0 && l.pipeline > 1;
  // Weights that are gathered for each micro-batch are narrowed each time (other_own_cast_bytes).
  const bool narrows_gathered = l.zero >= 3 && is_narrow(l.precision) && l.execution->kernels.narrows_apart;
  return {l.tensor,         l.context,        l.expert,
          l.expert_split(), l.context_method, l.sequence_parallel,
          copies_embedding, narrows_gathered, l.micro_batch};
}

PriceCache::SplitKey PriceCache::without_experts(SplitKey key) {
  key.expert = key.expert_split = 0;
  key.copies_embedding = false;
  return key;
}

PriceCache::Known PriceCache::known(const Layout& layout) const {
  Known known;
  SplitKey key = key_of(layout);
  const auto alike = dense_splits_.find(without_experts(key));
  if (const auto* prices = alike == dense_splits_.end() ? nullptr : alike->second->known_prices())
    known.work_s = prices->least_work_without_experts_s / double(layout.pipeline);
  key.micro_batch /= 2;
  for (auto at = splits_.upper_bound(key); at != splits_.begin();) {
    --at;
    key.micro_batch = at->first.micro_batch;
    if (at->first != key) break;
    const SplitPrices* const prices = at->second->known_prices();
    if (prices == nullptr) continue;
    known.way_s = prices->least_way_s;
    break;
  }
  return known;
}

const SplitModel& PriceCache::split(const Layout& l) {
  const SplitKey key = key_of(l);
  if (last_split_ != nullptr && key == last_key_) return *last_split_;
  if (last_split_ != nullptr) last_split_->forget_programs();
  std::unique_ptr<const SplitModel>& split = splits_[key];
  if (!split) {
    const SplitModel*& alike = dense_splits_[without_experts(key)];
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

std::vector<int64_t> balanced_stages(std::span<const double> layer_s, double before_s, double after_s,
                                     int64_t stages, std::span<const double> slowness) {
  MPT_CHECK(stages >= 1 && int64_t(layer_s.size()) >= stages, "{} stages for {} layers", stages,
            layer_s.size());
  std::vector<int64_t> counts(size_t(stages), 0);
  const auto filled = [&](double limit_s) {
    return fill(layer_s, before_s, after_s, slowness, limit_s, counts);
  };
  const double work = std::accumulate(layer_s.begin(), layer_s.end(), before_s + after_s);
  const double most = slowness.empty() ? 1.0 : *std::max_element(slowness.begin(), slowness.end());
  double rate = double(stages);
  if (!slowness.empty()) rate = sum_of<double>(slowness, [](double s) { return 1.0 / s; });
  // Filling within a limit succeeds if any division does, so the least limit that works is the optimum. The
  // work that a filling really has works as a limit; where a limit fails, so do all that fill alike.
  double low = work / rate * (1.0 - 1e-12);
  double high = std::min(filled(work * most).slowest_s, filled(low).slowest_s);
  while (high - low > 1e-12 * work * most) {
    const double middle = 0.5 * (low + high);
    const Filling filling = filled(middle);
    high = std::min(high, filling.slowest_s);
    if (filling.slowest_s > middle) low = std::min(filling.next_limit_s, filling.slowest_s);
  }
  filled(high * (1.0 + 1e-12));
  return counts;
}

}  // namespace mpt::planner
