// SPDX-License-Identifier: Apache-2.0
#include "planner/search/made_to_measure.h"

#include <gtest/gtest.h>

#include "core/schedule_catalog.h"
#include "planner/search/layout_resolver.h"
#include "tests/support/random_problem.h"

namespace mpt::planner {
namespace {

// Every other named schedule that puts the layout's stages on the same ranks.
std::vector<Layout> named_siblings(const Layout& layout) {
  std::vector<Layout> siblings;
  const auto ranks = int(layout.pipeline), chunks = int(layout.chunks);
  const std::vector<int> placement = find_schedule(layout.schedule, "test").placement(ranks, chunks);
  for (const ScheduleEntry& entry : schedule_catalog()) {
    if (entry.made_to_measure || chunks < entry.min_chunks || chunks > entry.max_chunks) continue;
    if (entry.placement(ranks, chunks) != placement) continue;
    siblings.push_back(layout);
    siblings.back().schedule = entry.name;
  }
  return siblings;
}

TEST(MadeToMeasure, FitsAndIsNeverSlowerThanANamedSchedule) {
  int compared = 0, faster = 0, over_memory = 0;
  for (uint32_t seed = 3000; seed < 3120; ++seed) {
    test::RandomProblem r(seed);
    r.problem.bounds.schedules = {"generated"};
    for (const Layout& layout : enumerate_layouts(r.problem)) {
      if (layout.pipeline == 1) continue;
      const Evaluation made = evaluate(r.problem, estimate(r.problem, layout));
      double best_named_s = INFINITY;
      for (const Layout& sibling : named_siblings(layout)) {
        const Evaluation named = evaluate(r.problem, estimate(r.problem, sibling));
        if (!named.rejection) best_named_s = std::min(best_named_s, named.step_time_s);
      }
      EXPECT_EQ(made.rejection.has_value(), best_named_s == INFINITY) << seed << " " << layout_name(layout);
      over_memory += made.rejection ? 1 : 0;
      if (made.rejection) continue;
      ++compared;
      EXPECT_LE(made.step_time_s, best_named_s) << seed << " " << layout_name(layout);
      EXPECT_LE(made.peak_bytes, r.problem.memory_limit_bytes);
      EXPECT_EQ(made.schedule.name, "generated");
      faster += made.step_time_s < best_named_s * 0.999 ? 1 : 0;
    }
  }
  EXPECT_GT(compared, 500);
  EXPECT_GT(faster, 100) << "list scheduling that never helps is not worth its name";
  EXPECT_GT(over_memory, 20);
}

TEST(MadeToMeasure, ALimitOnTimeChangesNothingThatKeepsIt) {
  for (uint32_t seed = 3200; seed < 3240; ++seed) {
    test::RandomProblem r(seed);
    r.problem.bounds.schedules = {"generated"};
    for (const Layout& layout : enumerate_layouts(r.problem)) {
      const Estimate e = estimate(r.problem, layout);
      ProgramCache programs;
      const auto free = make_to_measure(r.problem, layout, e.footprints, e.cost, programs);
      if (!free) continue;
      const auto limited = make_to_measure(r.problem, layout, e.footprints, e.cost, programs,
                                           free->step_time_s * (1.0 + 1e-9));
      ASSERT_TRUE(limited);
      EXPECT_EQ(limited->step_time_s, free->step_time_s) << seed << " " << layout_name(layout);
    }
  }
}

}  // namespace
}  // namespace mpt::planner
