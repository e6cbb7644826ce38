// SPDX-License-Identifier: Apache-2.0
#include "planner/search/near_misses.h"

#include "base/clock.h"
#include "planner/memory/memory_model.h"
#include "planner/search/inner_bound.h"

namespace mpt::planner {
namespace {

// Nodes kept of a split: those with the lowest floors, where the nearest miss is looked for.
constexpr size_t kNodesKept = 128;
// Of those as many are expanded for a near miss.
constexpr size_t kNodesExpanded = 2;

// A generated schedule needs as much memory as the leanest named one, whose name says more to people.
bool stands_for_named(const SearchProblem& problem, const Leaf& leaf) {
  const ScheduleEntry& entry = schedule_catalog()[leaf.schedule];
  return entry.made_to_measure && has_schedule(problem, leanest_schedule(entry, leaf.chunks).name);
}

}  // namespace

NearMisses::Split& NearMisses::split_of(const Layout& l) {
  const std::array<int64_t, 5> degrees{l.tensor, l.context, l.pipeline, l.data, l.expert};
  Split& split = splits_[degrees];
  split.degrees = degrees;
  return split;
}

std::string NearMisses::Split::name() const {
  const auto [tensor, context, pipeline, data, expert] = degrees;
  std::string name = fmt::format("tp{}", tensor);
  if (context > 1) name += fmt::format(" cp{}", context);
  name += fmt::format(" pp{} dp{}", pipeline, data);
  return expert > 1 ? name + fmt::format(" ep{}", expert) : name;
}

void NearMisses::add(Level level, const Layout& node, double floor_bytes, int64_t count) {
  const auto most_on_top = [](const Miss& a, const Miss& b) { return a.needs_less(b); };
  Split& split = split_of(node);
  split.count += count;
  if (split.misses.size() == kNodesKept) {
    if (split.misses.front().needed <= floor_bytes) return;
    std::pop_heap(split.misses.begin(), split.misses.end(), most_on_top);
    split.misses.pop_back();
  }
  split.misses.push_back({floor_bytes, level, false, node, {}, made_++});
  std::push_heap(split.misses.begin(), split.misses.end(), most_on_top);
}

void NearMisses::count_one(const Layout& node) { ++split_of(node).count; }

std::vector<NearMisses::Miss> NearMisses::expand(const Miss& miss) {
  if (miss.level == Level::degrees) return shardings(miss);
  std::vector<Miss> leaves;
  add_leaves(miss, leaves);
  return leaves;
}

std::vector<NearMisses::Miss> NearMisses::shardings(const Miss& degrees) {
  std::vector<Miss> misses;
  for (const Sharding& sharding : shardings_of(problem_, degrees.node)) {
    Miss miss{0.0, Level::sharding, false, with_sharding(degrees.node, sharding), {}, made_++};
    miss.needed = sharding_bound(problem_, miss.node, resolver_.prices().split(miss.node)).floor_bytes;
    misses.push_back(std::move(miss));
  }
  return misses;
}

void NearMisses::add_leaves(const Miss& sharding, std::vector<Miss>& heap) {
  for (const Leaf& leaf : leaves_of(problem_, sharding.node)) {
    if (leaf.recompute == RecomputeChoice::fitted || stands_for_named(problem_, leaf)) continue;
    const Layout layout = resolver_.layout(sharding.node, leaf);
    const auto floors = memory_floors(layout, placement_of(layout, leaf), resolver_.footprints(layout));
    heap.push_back({needed(layout, floors), Level::leaf, false, sharding.node, leaf, made_++});
    std::push_heap(heap.begin(), heap.end());
  }
}

std::optional<Rejection> NearMisses::rejection(const Layout& layout) {
  return exact_memory_rejection(problem_, estimate(problem_, resolver_.prices().split(layout), layout));
}

// Memory that the largest device would need. Limits of ranks differ where their devices do.
double NearMisses::needed(const Layout& layout, const std::vector<int64_t>& peaks) const {
  return double(problem_.memory_limit_bytes + excess_bytes(peaks, limits_of_ranks(problem_, layout)));
}

bool NearMisses::make_exact(Miss& miss) {
  const Layout layout = resolver_.layout(miss.node, miss.leaf);
  if (schedule_catalog()[miss.leaf.schedule].made_to_measure) {
    const std::optional<Rejection> rejection = this->rejection(layout);
    if (!rejection) return false;
    miss.needed = double(problem_.memory_limit_bytes) + rejection->needed - rejection->available;
  } else {
    miss.needed = needed(layout, resolver_.peaks(layout)->peak_bytes(resolver_.footprints(layout)));
    if (miss.needed <= double(problem_.memory_limit_bytes) && !host_rejection(problem_, layout)) return false;
  }
  miss.exact = true;
  return true;
}

NearMiss NearMisses::told(const Miss& leaf) {
  Layout layout = resolver_.layout(leaf.node, leaf.leaf);
  const Rejection rejection = *this->rejection(layout);
  const Split& split = split_of(leaf.node);
  return {split.name(), split.count, rejection, std::move(layout)};
}

std::optional<NearMiss> NearMisses::least() {
  // The first exact one is the least of all; where that takes too long, the least that is exact by then.
  constexpr double kLongest = 5.0;
  const double start_s = now_s();
  std::optional<Miss> best;
  std::vector<Miss> heap;
  for (auto& [degrees, split] : splits_)
    std::copy(split.misses.begin(), split.misses.end(), std::back_inserter(heap));
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    if (best && now_s() - start_s > kLongest) break;
    std::pop_heap(heap.begin(), heap.end());
    Miss miss = std::move(heap.back());
    heap.pop_back();
    if (miss.exact) return told(miss);
    std::vector<Miss> next;
    if (miss.level != Level::leaf) {
      next = expand(miss);
    } else if (make_exact(miss)) {
      if (!best || miss.needed < best->needed) best = miss;
      next.push_back(std::move(miss));
    }
    for (Miss& child : next) {
      heap.push_back(std::move(child));
      std::push_heap(heap.begin(), heap.end());
    }
  }
  return best ? std::optional(told(*best)) : std::nullopt;
}

// `split`: with its lowest floors first.
std::optional<NearMisses::Miss> NearMisses::nearest_of(const Split& split) {
  const auto by_need = [](const Miss& a, const Miss& b) { return a.needs_less(b); };
  std::vector<Miss> nodes, leaves;
  for (size_t n = 0; n < split.misses.size() && n < kNodesExpanded; ++n) {
    const Miss& miss = split.misses[n];
    const auto inside = miss.level == Level::degrees ? shardings(miss) : std::vector{miss};
    nodes.insert(nodes.end(), inside.begin(), inside.end());
  }
  std::stable_sort(nodes.begin(), nodes.end(), by_need);
  for (size_t n = 0; n < nodes.size() && n < kNodesExpanded; ++n) add_leaves(nodes[n], leaves);
  // Of a node's leaves those with full recompute and few chunks need least; the schedule decides which. The
  // top of the heap has few.
  const auto chunks = leaves.empty() ? 0 : leaves.front().leaf.chunks;
  std::erase_if(leaves, [&](const Miss& m) {
    return m.leaf.recompute != RecomputeChoice::full || m.leaf.chunks > chunks + 1;
  });
  std::erase_if(leaves, [&](Miss& m) { return !make_exact(m); });
  const auto miss = std::min_element(leaves.begin(), leaves.end(), by_need);
  return miss == leaves.end() ? std::nullopt : std::optional(*miss);
}

std::vector<NearMiss> NearMisses::nearest(size_t most) {
  const size_t splits_looked_at = 2 * most;
  std::vector<Split*> splits;
  for (auto& [degrees, split] : splits_) {
    std::sort(split.misses.begin(), split.misses.end(),
              [](const Miss& a, const Miss& b) { return a.needs_less(b); });
    if (!split.misses.empty()) splits.push_back(&split);
  }
  sort_by(splits, [](const Split* split) { return split->misses.front().needed; });
  std::vector<NearMiss> out;
  for (const Split* split : splits) {
    if (out.size() == splits_looked_at) break;
    if (const auto miss = nearest_of(*split)) out.push_back(told(*miss));
  }
  sort_by(out, [](const NearMiss& m) { return m.nearest.needed - m.nearest.available; });
  if (out.size() > most) out.erase(out.begin() + ptrdiff_t(most), out.end());
  return out;
}

}  // namespace mpt::planner
