// SPDX-License-Identifier: Apache-2.0
#include "planner/search/tiers.h"

#include "planner/search/complete_leaf.h"
#include "planner/search/inner_bound.h"
#include "planner/search/leaf_bounds.h"
#include "planner/search/open_leaf.h"

namespace mpt::planner {
namespace {

template <class P>
P& probe_of(bool (P::*)(double), Probe& probe) {
  return static_cast<P&>(probe);
}
template <class P>
const P& probe_of(bool (P::*)(double) const, Probe& probe) {
  return static_cast<const P&>(probe);
}

// A test of a probe, as a function of any probe.
template <auto Test>
bool test(Probe& probe, double incumbent_s) {
  return (probe_of(Test, probe).*Test)(incumbent_s);
}

constexpr std::array<Tier, kTiers> kTable{{
    {"degrees: state", Level::degrees, PruneReason::memory, test<&InnerBound::is_too_large>},
    {"degrees: work", Level::degrees, PruneReason::bound, test<&InnerBound::is_too_slow>},
    {"sharding: state", Level::sharding, PruneReason::memory, test<&InnerBound::is_too_large>},
    {"sharding: work", Level::sharding, PruneReason::bound, test<&InnerBound::is_too_slow>},
    {"leaf: recompute", Level::leaf, PruneReason::bound, test<&LeafBounds::recompute_is_too_slow>},
    {"leaf: duplicate", Level::leaf, PruneReason::duplicate, test<&LeafBounds::is_duplicate>},
    {"leaf: micro-batches", Level::leaf, PruneReason::bound, test<&LeafBounds::micro_batches_are_too_slow>},
    {"leaf: memory", Level::leaf, PruneReason::memory, test<&LeafBounds::is_too_large>},
    {"leaf: step", Level::leaf, PruneReason::bound, test<&LeafBounds::step_is_too_slow>},
    {"fit: first rank", Level::open_recompute, PruneReason::bound, test<&OpenLeaf::first_rank_is_too_slow>},
    {"fit: memory", Level::open_recompute, PruneReason::memory, test<&OpenLeaf::is_too_large>},
    {"fit: duplicate", Level::open_recompute, PruneReason::duplicate, test<&OpenLeaf::is_duplicate>},
    {"schedule: peak", Level::complete, PruneReason::memory, test<&CompleteLeaf::peak_is_too_large>},
    {"schedule: path", Level::complete, PruneReason::bound, test<&CompleteLeaf::path_is_too_slow>},
    {"generated: memory", Level::complete, PruneReason::memory, test<&CompleteLeaf::no_schedule_fits>},
    {"generated: duplicate", Level::complete, PruneReason::duplicate,
     test<&CompleteLeaf::schedule_is_duplicate>},
    {"frontier", Level::frontier, PruneReason::bound, nullptr},
}};

// Tiers of one level stand together, so that a leaf is not compared with those of all levels.
constexpr std::span<const Tier> find_tiers(Level level) {
  size_t first = 0, last = kTiers;
  while (kTable[first].level != level) ++first;
  while (kTable[last - 1].level != level) --last;
  return std::span<const Tier>(kTable).subspan(first, last - first);
}

constexpr std::array<std::span<const Tier>, size_t(Level::frontier)> kByLevel{
    find_tiers(Level::degrees), find_tiers(Level::sharding), find_tiers(Level::leaf),
    find_tiers(Level::open_recompute), find_tiers(Level::complete)};

}  // namespace

std::span<const Tier, kTiers> tiers() { return kTable; }
std::span<const Tier> tiers_of(Level level) { return kByLevel[size_t(level)]; }

}  // namespace mpt::planner
