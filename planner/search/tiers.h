// SPDX-License-Identifier: Apache-2.0
#pragma once

// Bound tiers: the tests that can prune a node, in order of price. tiers() is the one list of them. A probe
// is what the tiers of one level look at: a node, with what was worked out about it so far.

#include <optional>
#include <span>
#include <vector>

#include "core/plan.h"
#include "planner/search/incumbent.h"
#include "planner/search/inner_bound.h"
#include "planner/search/leaf_bounds.h"
#include "planner/search/leaf_memory.h"
#include "planner/search/made_to_measure.h"
#include "planner/search/node.h"

namespace mpt::planner {

struct Probe {};

struct Tier {
  const char* name;
  Level level;  // of the nodes that it tests
  PruneReason reason;
  /// Whether the node falls. `incumbent_s`: nothing slower is of interest. Null: of the last tier.
  bool (*prunes)(Probe& node, double incumbent_s);
};

inline constexpr size_t kTiers = 17;
/// In the order in which a layout meets them; a later one costs more. The last one prunes at once all nodes
/// that are in the frontier when the search ends.
std::span<const Tier, kTiers> tiers();

/// An inner node.
struct InnerProbe : Probe {
  InnerProbe(const InnerBound& of, int64_t limit_bytes)
      : bound(of), memory_limit_bytes(double(limit_bytes)) {}
  bool is_too_large(double) const { return bound.floor_bytes > memory_limit_bytes; }
  bool is_too_slow(double incumbent_s) const { return bound.bound_s > incumbent_s; }

  const InnerBound bound;
  const double memory_limit_bytes;
};

/// The leaves of a sharding node, one after the other.
class LeafProbe : public Probe {
 public:
  /// `node`: of sharding. All must outlive this.
  LeafProbe(const SearchProblem& problem, LayoutResolver& resolver, const Layout& node, const LeafList& list,
            const DegreesBounds& degrees, bool makes_schedules)
      : degrees_(degrees),
        bounds_(problem, resolver, node, list, degrees),
        memory_(problem, resolver, node, list, makes_schedules) {}

  void select(size_t leaf) { leaf_ = leaf; }
  bool recompute_is_too_slow(double) const { return degrees_.too_slow(leaf_); }
  bool is_duplicate(double) const { return degrees_.duplicate(leaf_); }
  bool micro_batches_are_too_slow(double incumbent_s) {
    return (bound_s_ = bounds_.least_s(leaf_)) > incumbent_s;
  }
  bool is_too_large(double) {
    return (fits_ = memory_.fits(leaf_, degrees_.stages(leaf_))) == LeafMemory::Fits::no;
  }
  bool step_is_too_slow(double incumbent_s) { return (bound_s_ = bounds_.bound_s(leaf_)) > incumbent_s; }

  /// By the last bound that was asked for.
  double bound_s() const { return bound_s_; }
  bool surely_fits() const { return fits_ == LeafMemory::Fits::yes; }

 private:
  const DegreesBounds& degrees_;
  LeafBounds bounds_;
  LeafMemory memory_;
  size_t leaf_ = 0;
  double bound_s_ = 0.0;
  LeafMemory::Fits fits_ = LeafMemory::Fits::unknown;
};

/// A leaf whose recompute is open: it is fitted when the first tier asks.
class OpenProbe : public Probe {
 public:
  /// `layout`: of the leaf. `node`: its parent. `all_fit`: it is known to fit with all layers recomputed.
  OpenProbe(const SearchProblem& problem, LayoutResolver& resolver, const Layout& node, const Leaf& leaf,
            Layout& layout, bool all_fit);

  bool first_rank_is_too_slow(double incumbent_s) { return fit(incumbent_s) == FitOutcome::too_slow; }
  bool is_too_large(double incumbent_s) { return fit(incumbent_s) == FitOutcome::over_memory; }
  bool is_duplicate(double incumbent_s) { return fit(incumbent_s) == FitOutcome::duplicate; }
  /// Of the layout, once it is fitted.
  double bound_s() const { return bounds_.bound_s(); }

 private:
  FitOutcome fit(double incumbent_s);

  LayoutResolver& resolver_;
  Layout& layout_;
  const bool all_fit_;
  const StageKinds& stages_;
  const FittedBounds bounds_;
  std::optional<FitOutcome> outcome_;
};

/// A complete leaf, before and while it is simulated.
class CompleteProbe : public Probe {
 public:
  /// `fits`: memory is known to suffice. All must outlive this.
  CompleteProbe(const SearchProblem& problem, LayoutResolver& resolver, const Leaf& leaf,
                const Layout& layout, bool fits)
      : problem_(problem),
        resolver_(resolver),
        leaf_(leaf),
        layout_(layout),
        fits_(fits),
        generated_(schedule_catalog()[leaf.schedule].made_to_measure) {}

  bool peak_is_too_large(double);
  bool order_is_too_slow(double incumbent_s);
  bool no_schedule_fits(double incumbent_s);
  bool schedule_is_duplicate(double incumbent_s);

  /// Of a leaf that no tier prunes; nothing if it is slower than the incumbent. `durations` and `timeline`
  /// are memory to use.
  std::optional<Incumbent> simulate(double incumbent_s, std::vector<double>& durations, Timeline& timeline);

 private:
  const StepCost& cost();
  const std::vector<StageFootprint>& footprints();
  const std::optional<MadeSchedule>& made(double incumbent_s);

  const SearchProblem& problem_;
  LayoutResolver& resolver_;
  const Leaf& leaf_;
  const Layout& layout_;
  const bool fits_, generated_;
  std::optional<StepCost> cost_;
  std::optional<std::vector<StageFootprint>> footprints_;
  std::optional<std::optional<MadeSchedule>> made_;  // once asked for
};

}  // namespace mpt::planner
