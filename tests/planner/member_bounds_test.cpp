// SPDX-License-Identifier: Apache-2.0

// What a search knows of members by kind of stage, against what it is stage by stage.

#include "planner/search/member_bounds.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/lower.h"
#include "planner/memory/memory_model.h"
#include "planner/search/member_fits.h"
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
bool fits(const SearchProblem& problem, Layout layout, const Member& member) {
  layout.recompute = recompute_of(member.recompute);
  const auto footprints = models::stage_footprints(problem.model, layout, problem.workload);
  const ScheduleEntry& own = schedule_catalog()[member.schedule];
  if (!own.made_to_measure || member.recompute == RecomputeChoice::fitted)
    return fits(problem, layout, leanest_schedule(own, member.chunks), footprints);
  const auto placement = own.placement(int(layout.pipeline), member.chunks);
  return std::any_of(schedule_catalog().begin(), schedule_catalog().end(), [&](const ScheduleEntry& entry) {
    return !entry.made_to_measure && member.chunks >= entry.min_chunks && member.chunks <= entry.max_chunks &&
           entry.placement(int(layout.pipeline), member.chunks) == placement &&
           fits(problem, layout, entry, footprints);
  });
}

TEST(MemberBounds, AndFitsAreThoseOfTheLayoutsThemselves) {
  int64_t fitting = 0, too_large = 0, twins = 0, unknown = 0, tight = 0, bounded = 0;
  for (uint32_t seed = 6000; seed < 6040; ++seed) {
    RandomProblem r(seed);
    LayoutResolver resolver(r.problem);
    visit_groups(r.problem, [&](const Layout& group) {
      const MemberList list(members_of(r.problem, {group}));
      const GroupBounds of_group(r.problem, resolver, group, list, [](const Member&) { return false; });
      for (const Sharding& sharding : shardings_of(r.problem, group)) {
        const Family family = family_of(group, sharding);
        MemberBounds bounds(r.problem, resolver, family.layout, list, of_group);
        MemberFits known_fits(r.problem, resolver, family.layout, list, false);
        for (size_t m = 0; m < list.members.size(); ++m) {
          const Member& member = list.members[m];
          ASSERT_FALSE(of_group.too_slow(m));
          ASSERT_EQ(of_group.twin(m), resolver.is_twin(family.layout, member));
          if (of_group.twin(m)) {
            ++twins;
            continue;
          }
          const Layout layout = resolver.layout(family, member);
          const double bound_s = bounds.bound_s(m), least_s = bounds.least_s(m);
          EXPECT_DOUBLE_EQ(bound_s, estimate(r.problem, layout).bound_s)
              << seed << " " << layout_name(layout);
          EXPECT_LE(least_s, bound_s * (1.0 + 1e-12)) << seed << " " << layout_name(layout);
          ++bounded;
          tight += least_s > 0.99 * bound_s ? 1 : 0;
          const bool expected = fits(r.problem, layout, member);
          const MemberFits::Fits known = known_fits.fits(m, of_group.stages(m));
          if (known == MemberFits::Fits::unknown) {
            ++unknown;
            resolver.peaks(layout);  // from now on it is known
          } else {
            EXPECT_EQ(known == MemberFits::Fits::yes, expected) << seed << " " << layout_name(layout);
          }
          ++(expected ? fitting : too_large);
        }
        // Asked for again now that all schedules are there, and where they are made on the way.
        MemberFits all_fits(r.problem, resolver, family.layout, list, true);
        for (size_t m = 0; m < list.members.size(); ++m) {
          if (of_group.twin(m)) continue;
          const bool expected = fits(r.problem, resolver.layout(family, list.members[m]), list.members[m]);
          EXPECT_EQ(all_fits.fits(m, of_group.stages(m)) == MemberFits::Fits::yes, expected);
        }
      }
    });
  }
  EXPECT_GT(fitting, 1000);
  EXPECT_GT(too_large, 1000);
  EXPECT_GT(twins, 100);
  EXPECT_GT(unknown, 10);
  EXPECT_LT(5 * unknown, fitting + too_large);
  EXPECT_GT(2 * tight, bounded);
}

TEST(FittedBounds, OfTheFirstRankIsNeverAboveThatOfTheLayout) {
  int64_t fitted = 0, decides = 0;
  for (uint32_t seed = 7000; seed < 7060; ++seed) {
    RandomProblem r(seed);
    r.problem.framework.reset();
    r.problem.fits_recompute = true;
    LayoutResolver resolver(r.problem);
    visit_families(r.problem, [&](const Family& family) {
      for (const Member& member : members_of(r.problem, family)) {
        if (member.recompute != RecomputeChoice::fitted) continue;
        const StageKinds* stages = resolver.stages(family.layout, member);
        if (stages == nullptr) continue;
        Layout layout = resolver.layout(family, member);
        if (resolver.fit(layout, *stages) != LayoutResolver::Fit::some_layers) continue;
        const SharedSplit split = resolver.split_of(layout);
        StateCosts states;
        const FittedBounds bounds(r.problem, *split, layout, *stages, states);
        const double bound_s = bounds.bound_s(), first_s = bounds.first_rank_s(layout.recomputed_layers);
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
