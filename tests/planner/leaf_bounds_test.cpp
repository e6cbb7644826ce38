// SPDX-License-Identifier: Apache-2.0

// Bounds and memory of leaves by kind of stage, against those of whole layouts.

#include "planner/search/leaf_bounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/lower.h"
#include "planner/memory/memory_model.h"
#include "planner/search/open_leaf.h"
#include "tests/support/random_problem.h"

namespace mpt::planner {
namespace {

using test::RandomProblem;

bool fits(const SearchProblem& problem, const Layout& layout, const ScheduleEntry& entry,
          const std::vector<StageFootprint>& footprints) {
  const auto placement = entry.placement(int(layout.pipeline), int(layout.chunks));
  const std::vector<int64_t> limits = limits_of_ranks(problem, layout);
  if (excess_bytes(memory_floors(layout, placement, footprints), limits) > 0) return false;
  const Schedule schedule =
      entry.generate(int(layout.pipeline), int(layout.chunks), int(micro_batches(layout, problem.workload)));
  return excess_bytes(peak_bytes(lower(layout, schedule, footprints)), limits) <= 0;
}

// By its definition.
bool fits(const SearchProblem& problem, Layout layout, const Leaf& leaf) {
  layout.recompute = recompute_of(leaf.recompute);
  const auto footprints = models::stage_footprints(problem.model, layout, problem.workload);
  const ScheduleEntry& own = schedule_catalog()[leaf.schedule];
  if (!own.made_to_measure || leaf.recompute == RecomputeChoice::fitted)
    return fits(problem, layout, leanest_schedule(own, leaf.chunks), footprints);
  const auto placement = own.placement(int(layout.pipeline), leaf.chunks);
  return std::any_of(schedule_catalog().begin(), schedule_catalog().end(), [&](const ScheduleEntry& entry) {
    return !entry.made_to_measure && leaf.chunks >= entry.min_chunks && leaf.chunks <= entry.max_chunks &&
           entry.placement(int(layout.pipeline), leaf.chunks) == placement &&
           fits(problem, layout, entry, footprints);
  });
}

TEST(LeafBounds, AndMemoryAreThoseOfTheLayoutsThemselves) {
  int64_t fitting = 0, too_large = 0, duplicates = 0, unknown = 0, tight = 0, bounded = 0;
  for (uint32_t seed = 6000; seed < 6040; ++seed) {
    RandomProblem r(seed);
    LayoutResolver resolver(r.problem);
    visit_degrees(r.problem, [&](const Layout& degrees, const std::vector<Sharding>& shardings) {
      const LeafList list(leaves_of(r.problem, degrees));
      const DegreesBounds of_degrees(r.problem, resolver, degrees, list, 1, [](const Leaf&) { return false; });
      for (const Sharding& sharding : shardings) {
        const Layout node = with_sharding(degrees, sharding);
        LeafBounds bounds(r.problem, resolver, node, list, of_degrees, false);
        for (size_t l = 0; l < list.leaves.size(); ++l) {
          const Leaf& leaf = list.leaves[l];
          bounds.select(l);
          ASSERT_FALSE(bounds.recompute_is_too_slow(0.0));
          ASSERT_EQ(bounds.is_duplicate(), resolver.stages(node, leaf) == nullptr);
          if (bounds.is_duplicate()) {
            ++duplicates;
            continue;
          }
          const Layout layout = resolver.layout(node, leaf);
          const double bound_s = bounds.bound_s(), least_s = bounds.least_s();
          EXPECT_DOUBLE_EQ(bound_s, estimate(r.problem, layout).bound_s)
              << seed << " " << layout_name(layout);
          EXPECT_LE(least_s, bound_s * (1.0 + 1e-12)) << seed << " " << layout_name(layout);
          ++bounded;
          tight += least_s > 0.99 * bound_s ? 1 : 0;
          const bool expected = fits(r.problem, layout, leaf);
          const LeafMemory::Fits known = bounds.memory_fits();
          if (known == LeafMemory::Fits::unknown) {
            ++unknown;
            resolver.peaks(layout);  // from now on it is known
          } else {
            EXPECT_EQ(known == LeafMemory::Fits::yes, expected) << seed << " " << layout_name(layout);
          }
          ++(expected ? fitting : too_large);
        }
        // Asked for again now that all schedules are there, and where they are made on the way.
        LeafBounds all_known(r.problem, resolver, node, list, of_degrees, true);
        for (size_t l = 0; l < list.leaves.size(); ++l) {
          all_known.select(l);
          if (all_known.is_duplicate()) continue;
          const bool expected = fits(r.problem, resolver.layout(node, list.leaves[l]), list.leaves[l]);
          EXPECT_EQ(all_known.memory_fits() == LeafMemory::Fits::yes, expected);
        }
      }
    });
  }
  EXPECT_GT(fitting, 1000);
  EXPECT_GT(too_large, 1000);
  EXPECT_GT(duplicates, 100);
  EXPECT_GT(unknown, 10);
  EXPECT_LT(5 * unknown, fitting + too_large);
  EXPECT_GT(2 * tight, bounded);
}

TEST(OpenLeaf, TheBoundOfTheFirstRankIsNeverAboveThatOfTheLayout) {
  int64_t fitted = 0, decides = 0;
  for (uint32_t seed = 7000; seed < 7060; ++seed) {
    RandomProblem r(seed);
    r.problem.framework.reset();
    r.problem.fits_recompute = true;
    LayoutResolver resolver(r.problem);
    visit_shardings(r.problem, [&](const Layout& node) {
      for (const Leaf& leaf : leaves_of(r.problem, node)) {
        if (leaf.recompute != RecomputeChoice::fitted) continue;
        const StageKinds* stages = resolver.stages(node, leaf);
        if (stages == nullptr) continue;
        Layout layout = resolver.layout(node, leaf);
        OpenLeaf open(r.problem, resolver, *stages, layout, false);
        if (open.fit(INFINITY) != FitOutcome::some_layers) continue;
        const double bound_s = open.bound_s(), first_s = open.first_rank_s(layout.recomputed_layers);
        EXPECT_DOUBLE_EQ(bound_s, estimate(r.problem, layout).bound_s) << seed << " " << layout_name(layout);
        EXPECT_LE(first_s, bound_s) << seed << " " << layout_name(layout);
        ++fitted;
        decides += first_s == bound_s ? 1 : 0;
      }
    });
  }
  EXPECT_GT(fitted, 100);
  EXPECT_GT(decides, 10);
}

}  // namespace
}  // namespace mpt::planner
