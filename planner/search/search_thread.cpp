// SPDX-License-Identifier: Apache-2.0
#include "planner/search/search_thread.h"

#include <numeric>

#include "planner/search/complete_leaf.h"
#include "planner/search/open_leaf.h"

namespace mpt::planner {
namespace {

// Null: none does.
const Tier* first_that_prunes(std::span<const Tier> tiers, Probe& node, double incumbent_s) {
  return first_if(tiers, [&](const Tier& tier) { return tier.prunes(node, incumbent_s); });
}

}  // namespace

SearchThread::SearchThread(const SearchPart& part, size_t thread, LayoutResolver& resolver,
                           SharedIncumbent& shared)
    : problem_(&part.problem),
      roomier_(part.roomier),
      wanted_(part.wanted),
      thread_(thread),
      threads_(part.problem.searching_threads()),
      resolver_(resolver),
      shared_(&shared),
      model_traits_(frameworks::traits_of(part.problem.model)),
      makes_schedules_(shared.step_time_s() < kInfinity),
      near_misses_(part.problem, resolver) {}

void SearchThread::run() {
  visit_degrees(
      *problem_, {thread_, threads_, [this] { return !go_on(); }},
      [this](const Layout& layout, const auto& shardings) { list_degrees(layout, shardings); },
      result_.not_dividing);
  listed_ = true;
  result_.certificate.counted = !shared_->stopped();
  walk();
  finish();
}

void SearchThread::run_roomier(const SearchProblem& next, SharedIncumbent& shared) {
  shared_ = &shared;
  problem_ = &next;
  if (roomier_ == &next) roomier_ = nullptr;
  wanted_ = 1;
  incumbents_.clear();
  times_.clear();
  too_large_.clear();
  frontier_ = {};
  for (const Layout& layout : std::exchange(degrees_for_room_, {})) {
    const std::vector<Sharding> shardings = shardings_of(*problem_, layout);
    add_degrees(layout, shardings, std::vector<int64_t>(shardings.size()));
  }
  for (const Node& node : std::exchange(nodes_for_room_, {})) {
    if (node.bound_s > incumbent_s()) continue;
    const Layout layout = sharding_layout(node);
    const bool waits = roomier_ != nullptr && node.level == Level::sharding &&
                       sharding_bound(*problem_, layout, resolver_.prices().split(layout)).is_too_large();
    waits ? nodes_for_room_.push_back(node) : frontier_.push(node);
  }
  walk();
}

void SearchThread::walk() {
  while (!frontier_.empty() && frontier_.top().bound_s <= incumbent_s() && go_on()) {
    const Node node = frontier_.top();
    frontier_.pop();
    if (node.level == Level::sharding)
      expand(node);
    else if (node.level == Level::open_recompute)
      fit(node);
    else
      simulate(node);
  }
}

bool SearchThread::prunes_inner(Level level, const Layout& node, InnerBound bound, int64_t layouts) {
  const Tier* const tier = first_that_prunes(tiers_of(level), bound, incumbent_s());
  if (tier == nullptr) return false;
  count(*tier, layouts);
  if (tier->reason != PruneReason::memory) return true;
  near_misses_.add(level, node, bound.floor_bytes, layouts);
  if (level == Level::degrees && waits_for_room(bound.floor_bytes)) degrees_for_room_.push_back(node);
  return true;
}

const LeafList& SearchThread::leaves(const Layout& node) {
  const std::tuple key{node.pipeline, micro_batches(node, problem_->workload), node.overlap_tensor,
                       node.overlap_exchange};
  auto at = leaves_.find(key);
  if (at == leaves_.end()) at = leaves_.emplace(key, leaf_list_of(*problem_, node)).first;
  return at->second;
}

// `traits` are those of the node.
LeafRunners SearchThread::combined(frameworks::Traits traits, const LeafList& list) {
  auto& known = combined_[traits];
  LeafRunners runners{};
  for (size_t i = 0; i < list.traits.size(); ++i) {
    const frameworks::Traits added = list.traits[i].first;
    auto at = find_if(known, [&](const auto& one) { return one.first == added; });
    if (at == known.end()) {
      const auto refuses = [&](const frameworks::Framework& f) {
        return !combines(f, problem_->model.type, traits | added);
      };
      const auto& only = problem_->framework;
      at = known.insert(at, {added, only ? Runners(!refuses(*only)) : problem_->runners(refuses)});
    }
    runners[i] = at->second;
  }
  return runners;
}

void SearchThread::list_degrees(const Layout& layout, const std::vector<Sharding>& shardings) {
  const LeafList& list = leaves(layout);
  if (list.leaves.empty()) return;
  const frameworks::Traits traits =
      model_traits_ | (frameworks::traits_of(layout) & ~frameworks::kSharingTraits);
  std::vector<Sharding> kept;
  std::vector<int64_t> counts;
  for (const Sharding& s : shardings) {
    const auto shared = frameworks::traits_of_sharing(s.zero, s.shard < layout.replicas(), s.offload);
    const LeafRunners runners = combined(traits | shared, list);
    int64_t count = 0;
    for (size_t i = 0; i < list.traits.size(); ++i) count += has_any(runners[i]) ? list.traits[i].second : 0;
    if (count == 0) continue;
    kept.push_back(s);
    counts.push_back(count);
    result_.certificate.layouts += count;
  }
  if (!kept.empty()) return add_degrees(layout, kept, counts);
  const Layout first = with_sharding(layout, shardings.front());
  if (const auto refused = refused_below(*problem_, first, list.leaves.front()))
    ++result_.not_dividing[refused->reason];
}

// `leaves`: below each of its children.
void SearchThread::add_degrees(const Layout& layout, const std::vector<Sharding>& shardings,
                               const std::vector<int64_t>& leaves) {
  const int64_t all = std::accumulate(leaves.begin(), leaves.end(), int64_t{0});
  const PriceCache::Known known = resolver_.prices().known(layout);
  InnerBound unpriced;
  unpriced.bound_s = std::max(known.way_s, double(micro_batches(layout, problem_->workload)) * known.work_s) /
                     contention_of(*problem_, layout).best(layout.pipeline).of_one;
  unpriced.memory_limit_bytes = double(problem_->memory_limit_bytes);
  if (prunes_inner(Level::degrees, layout, unpriced, all)) return;
  const InnerBound bound = degrees_bound(*problem_, layout, resolver_.prices().split(layout));
  if (prunes_inner(Level::degrees, layout, bound, all)) return;
  degrees_.push_back(layout);
  shardings_.push_back(shardings);
  runners_.push_back(problem_->runners([&](const frameworks::Framework& f) {
    return supports_degrees(f, {layout.tensor, layout.context, layout.pipeline, layout.data}) ||
           supports_split(f, problem_->model, layout, problem_->workload);
  }));
  for (size_t s = 0; s < shardings.size(); ++s) add_sharding(s, shardings[s], leaves[s]);
}

// Below the node of degrees that was added last.
void SearchThread::add_sharding(size_t index, const Sharding& sharding, int64_t leaves) {
  const Layout layout = with_sharding(degrees_.back(), sharding);
  const InnerBound bound = sharding_bound(*problem_, layout, resolver_.prices().split(layout));
  Node node;
  node.bound_s = bound.bound_s;
  node.step_end_s = bound.step_end_s;
  node.degrees = uint32_t(degrees_.size() - 1);
  node.sharding = uint16_t(index);
  if (!prunes_inner(Level::sharding, layout, bound, leaves)) {
    node.runners = runners_.back() & problem_->runners([&](const frameworks::Framework& f) {
      return refuses_sharding(f, problem_->model, layout, sharding);
    });
    waiting_ += leaves;
    has_any(node.runners) ? frontier_.push(node) : leave_out(leaves);
  } else if (bound.is_too_large() && waits_for_room(bound.floor_bytes)) {
    nodes_for_room_.push_back(node);
  }
}

Layout SearchThread::sharding_layout(const Node& node) const {
  return with_sharding(degrees_[node.degrees], shardings_[node.degrees][node.sharding]);
}

Layout SearchThread::leaf_layout(const Node& node) {
  Layout layout = resolver_.layout(sharding_layout(node), node.leaf);
  if (node.fitted < 0) return layout;
  layout.recompute = Recompute::full;
  layout.recomputed_layers = fitted_[size_t(node.fitted)];
  return layout;
}

void SearchThread::expand(Node node) {
  const DegreesBounds& degrees = degrees_bounds(node.degrees);
  if (const double bound_s = degrees.least_s() + node.step_end_s; bound_s > node.bound_s) {
    node.bound_s = bound_s;  // it waits until it comes to the front again
    return frontier_.push(node);
  }
  const Layout layout = sharding_layout(node);
  const LeafList& list = leaves(layout);
  const frameworks::Traits traits = model_traits_ | frameworks::traits_of(layout);
  const LeafRunners runners = combined(traits, list);
  LeafBounds bounds(*problem_, resolver_, layout, list, degrees, makes_schedules_);
  const std::span<const Tier> tiers = tiers_of(Level::leaf);
  const double incumbent_s = this->incumbent_s();
  for (size_t l = 0; l < list.leaves.size(); ++l) {
    const Runners combine = runners[list.traits_of_leaf[l]];
    if (!has_any(combine)) continue;
    if (!are_wanted(node.runners & combine & list.runners[l])) {
      leave_out(1);
      continue;
    }
    bounds.select(l);
    const Tier* const tier = first_that_prunes(tiers, bounds, incumbent_s);
    if (tier != nullptr && tier->reason != PruneReason::memory) {
      --waiting_;
      count(*tier, 1);
      continue;
    }
    add_leaf(node, list.leaves[l], bounds, tier);
    if (tier != nullptr && roomier_ != nullptr && bounds.may_fit(*roomier_))
      nodes_for_room_.push_back(too_large_.back());
  }
}

// `memory`: the tier that found it too large, or null.
void SearchThread::add_leaf(const Node& parent, const Leaf& leaf, const LeafBounds& bounds,
                            const Tier* memory) {
  Node node = parent;
  node.level = leaf.recompute == RecomputeChoice::fitted ? Level::open_recompute : Level::complete;
  node.bound_s = bounds.last_bound_s();
  node.fits = bounds.surely_fits();
  node.leaf = leaf;
  if (memory == nullptr) {
    frontier_.push(node);
  } else {
    too_large_.push_back(node);
    too_large_tier_ = memory;
  }
}

const DegreesBounds& SearchThread::degrees_bounds(uint32_t index) {
  degrees_bounds_.resize(degrees_.size());
  std::optional<DegreesBounds>& bounds = degrees_bounds_[index];
  if (bounds) return *bounds;
  const Layout& degrees = degrees_[index];
  const UnpricedBounds unpriced(*problem_, degrees, resolver_.prices().split(degrees));
  // What its recompute, or the launching of so many chunks, alone makes too slow needs no better bound.
  const auto too_slow = [&](const Leaf& leaf) {
    return unpriced.bound_s(least_recompute(leaf.recompute), leaf.chunks) > incumbent_s();
  };
  return bounds.emplace(*problem_, resolver_, degrees, leaves(degrees), runners_[index], too_slow);
}

// Chooses the fewest recomputed layers that fit; the leaf then waits under the bound that they give.
void SearchThread::fit(Node node) {
  if (roomier_ != nullptr) nodes_for_room_.push_back(node);  // fewer layers may have to recompute
  Layout layout = leaf_layout(node);
  OpenLeaf leaf(*problem_, resolver_, *resolver_.stages(layout, node.leaf), layout, node.fits);
  if (const Tier* tier = first_that_prunes(tiers_of(node.level), leaf, incumbent_s()))
    return prune_leaf(*tier, node);
  node.level = Level::complete;
  node.fits = true;
  node.bound_s = std::max(node.bound_s, leaf.bound_s());
  fitted_.push_back(std::move(layout.recomputed_layers));
  node.fitted = int32_t(fitted_.size() - 1);
  frontier_.push(node);
}

void SearchThread::simulate(const Node& node) {
  const Layout layout = leaf_layout(node);
  if (!problem_->is_supported(layout)) return leave_out(1);
  if (roomier_ != nullptr && schedule_catalog()[node.leaf.schedule].made_to_measure)
    nodes_for_room_.push_back(node);
  CompleteLeaf leaf(*problem_, resolver_, node.leaf, layout, node.fits);
  if (const Tier* tier = first_that_prunes(tiers_of(node.level), leaf, incumbent_s()))
    return prune_leaf(*tier, node);
  --waiting_;
  ++result_.certificate.simulated;
  if (auto found = leaf.simulate(incumbent_s(), step_)) keep(std::move(*found));
}

void SearchThread::prune_leaf(const Tier& tier, const Node& node) {
  --waiting_;
  count(tier, 1);
  if (tier.reason != PruneReason::memory) return;
  if (roomier_ != nullptr && node.level == Level::complete) nodes_for_room_.push_back(node);
  if (missed_.emplace(node.degrees, node.sharding).second) {
    const Layout layout = sharding_layout(node);
    const InnerBound bound = sharding_bound(*problem_, layout, resolver_.prices().split(layout));
    near_misses_.add(Level::sharding, layout, bound.floor_bytes, 0);
  }
  near_misses_.count_one(degrees_[node.degrees]);
}

// Layouts that are not in the space after all: another search has them, or each rule of some framework takes
// them, but no framework as a whole.
void SearchThread::leave_out(int64_t layouts) {
  waiting_ -= layouts;
  result_.certificate.layouts -= layouts;
}

void SearchThread::keep(Incumbent incumbent) {
  const auto at = std::upper_bound(incumbents_.begin(), incumbents_.end(), incumbent,
                                   [](const Incumbent& a, const Incumbent& b) { return a.key() < b.key(); });
  times_.insert(times_.begin() + (at - incumbents_.begin()), incumbent.step_time_s);
  incumbents_.insert(at, std::move(incumbent));
  shared_->lower_to(wanted_.most_s(times_, problem_->gap));
  shared_->found(times_.front());
  times_.resize(wanted_.count(times_));
  incumbents_.erase(incumbents_.begin() + ptrdiff_t(times_.size()), incumbents_.end());
}

double SearchThread::frontier_s() const {
  return !listed_ ? 0.0 : frontier_.empty() ? kInfinity : frontier_.top().bound_s;
}

bool SearchThread::go_on() {
  if (++looked_ % problem_->look_every == 0)
    shared_->report(thread_, result_.certificate.layouts - waiting_, frontier_s(), problem_->time_limit_s);
  return !shared_->stopped();
}

void SearchThread::tell_near_misses(bool nothing_fits) {
  if (nothing_fits) {
    if (auto least = near_misses_.least()) result_.over_memory.push_back(std::move(*least));
  } else {
    result_.over_memory = near_misses_.nearest(kNearMissesTold);
  }
  result_.more_over_memory = near_misses_.splits() - int64_t(result_.over_memory.size());
}

void SearchThread::finish() {
  prune_frontier();
  SearchCertificate& c = result_.certificate;
  for (size_t t = 0; t < kTiers; ++t) {
    const Tier& tier = tiers()[t];
    int64_t& sum = tier.reason == PruneReason::memory  ? c.over_memory
                   : tier.reason == PruneReason::bound ? c.over_bound
                                                       : c.same;
    sum += pruned_[t];
    c.pruned.push_back({tier.name, tier.reason, pruned_[t]});
  }
  MPT_CHECK(c.over_memory + c.over_bound + c.same + c.simulated + c.not_reached == c.layouts,
            "{} layouts, {} accounted for", c.layouts,
            c.over_memory + c.over_bound + c.same + c.simulated + c.not_reached);
}

void SearchThread::prune_frontier() {
  // Of the leaves that do not fit, those slower than the incumbents are pruned for that.
  for (const Node& node : too_large_)
    if (node.bound_s <= incumbent_s()) prune_leaf(*too_large_tier_, node);
  const bool front_is_slower = frontier_.empty() || frontier_.top().bound_s > incumbent_s();
  SearchCertificate& c = result_.certificate;
  c.optimal = front_is_slower && c.counted;
  // Nothing is known of nodes that were not looked at; of the rest the front of the frontier is fastest.
  result_.bound_s = !c.counted ? 0.0 : frontier_.empty() ? kInfinity : frontier_.top().bound_s;
  if (front_is_slower)
    count(tiers().back(), waiting_);
  else
    c.not_reached += waiting_;
}

}  // namespace mpt::planner
