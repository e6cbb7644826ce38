// SPDX-License-Identifier: Apache-2.0
#include "planner/search/tiers.h"

#include <algorithm>
#include <array>

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
    {"degrees: state", Level::degrees, PruneReason::memory, test<&InnerProbe::is_too_large>},
    {"degrees: work", Level::degrees, PruneReason::bound, test<&InnerProbe::is_too_slow>},
    {"sharding: state", Level::sharding, PruneReason::memory, test<&InnerProbe::is_too_large>},
    {"sharding: work", Level::sharding, PruneReason::bound, test<&InnerProbe::is_too_slow>},
    {"leaf: recompute", Level::leaf, PruneReason::bound, test<&LeafProbe::recompute_is_too_slow>},
    {"leaf: duplicate", Level::leaf, PruneReason::duplicate, test<&LeafProbe::is_duplicate>},
    {"leaf: micro-batches", Level::leaf, PruneReason::bound, test<&LeafProbe::micro_batches_are_too_slow>},
    {"leaf: memory", Level::leaf, PruneReason::memory, test<&LeafProbe::is_too_large>},
    {"leaf: step", Level::leaf, PruneReason::bound, test<&LeafProbe::step_is_too_slow>},
    {"fit: first rank", Level::open_recompute, PruneReason::bound, test<&OpenProbe::first_rank_is_too_slow>},
    {"fit: memory", Level::open_recompute, PruneReason::memory, test<&OpenProbe::is_too_large>},
    {"fit: duplicate", Level::open_recompute, PruneReason::duplicate, test<&OpenProbe::is_duplicate>},
    {"schedule: peak", Level::complete, PruneReason::memory, test<&CompleteProbe::peak_is_too_large>},
    {"schedule: order", Level::complete, PruneReason::bound, test<&CompleteProbe::order_is_too_slow>},
    {"generated: memory", Level::complete, PruneReason::memory, test<&CompleteProbe::no_schedule_fits>},
    {"generated: duplicate", Level::complete, PruneReason::duplicate,
     test<&CompleteProbe::schedule_is_duplicate>},
    {"frontier", Level::sharding, PruneReason::bound, nullptr},
}};

}  // namespace

std::span<const Tier, kTiers> tiers() { return kTable; }

OpenProbe::OpenProbe(const SearchProblem& problem, LayoutResolver& resolver, const Layout& node,
                     const Leaf& leaf, Layout& layout, bool all_fit)
    : resolver_(resolver),
      layout_(layout),
      all_fit_(all_fit),
      stages_(*resolver.stages(node, leaf)),
      bounds_(problem, resolver.prices().split(layout), layout, stages_,
              resolver.prices().sharding(layout).states) {}

FitOutcome OpenProbe::fit(double incumbent_s) {
  if (outcome_) return *outcome_;
  // Where it fits with all its layers recomputed, time decides.
  const auto too_slow = [&](std::span<const int64_t> recomputed_layers) {
    return all_fit_ && bounds_.first_rank_s(recomputed_layers) > incumbent_s;
  };
  outcome_ = resolver_.fit(layout_, stages_, all_fit_, too_slow);
  return *outcome_;
}

const StepCost& CompleteProbe::cost() {
  if (!cost_) cost_ = resolver_.cost(layout_, leaf_);
  return *cost_;
}

const std::vector<StageFootprint>& CompleteProbe::footprints() {
  if (!footprints_) footprints_ = resolver_.footprints(layout_);
  return *footprints_;
}

const std::optional<MadeSchedule>& CompleteProbe::made(double incumbent_s) {
  if (!made_)
    made_ = make_to_measure(problem_, layout_, footprints(), cost(), resolver_.programs(), incumbent_s);
  return *made_;
}

bool CompleteProbe::peak_is_too_large(double) {
  return !fits_ && !generated_ &&
         !resolver_.peaks(layout_)->fit(footprints(), limits_of_ranks(problem_, layout_));
}

bool CompleteProbe::order_is_too_slow(double incumbent_s) {
  if (generated_) return false;
  const double best_rate = contention_of(problem_, layout_).best(layout_.pipeline).of_one;
  return resolver_.order(layout_)->seconds(layout_, cost(), best_rate) > incumbent_s;
}

bool CompleteProbe::no_schedule_fits(double incumbent_s) { return generated_ && !made(incumbent_s); }

// A named schedule that is as good is in the space under its own name.
bool CompleteProbe::schedule_is_duplicate(double incumbent_s) {
  if (!generated_) return false;
  const std::string& name = made(incumbent_s)->schedule->name;
  return name != layout_.schedule && allowed(problem_.bounds.schedules, name);
}

std::optional<Incumbent> CompleteProbe::simulate(double incumbent_s, std::vector<double>& durations,
                                                 Timeline& timeline) {
  Incumbent found{kInfinity, 0, {}};
  if (generated_) {
    found.step_time_s = made(incumbent_s)->step_time_s;
    found.peak_bytes = made(incumbent_s)->peak_bytes;
  } else {
    const std::vector<int64_t> peaks = resolver_.peaks(layout_)->peak_bytes(footprints());
    found.peak_bytes = *std::max_element(peaks.begin(), peaks.end());
    const auto program = resolver_.program(layout_);
    cost().durations(*program, durations);
    found.step_time_s =
        step_time_within(*program, durations, contention_of(problem_, layout_), incumbent_s, timeline);
  }
  if (found.step_time_s > incumbent_s) return std::nullopt;
  found.layout = layout_;
  return found;
}

}  // namespace mpt::planner
