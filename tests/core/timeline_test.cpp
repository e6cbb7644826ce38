// SPDX-License-Identifier: Apache-2.0
#include "core/timeline.h"

#include <gtest/gtest.h>

#include "core/lower.h"
#include "core/schedule_catalog.h"
#include "tests/support/core_plan.h"

namespace mpt {
namespace {

TEST(Timeline, TimeAndBubbleOfAHandMadeStep) {
  Layout layout;
  const StepProgram program =
      lower(layout, find_schedule("1f1b", "t").generate(1, 1, 1), test::distinct_footprints(1));
  // forward, backward, norm, optimizer
  ASSERT_EQ(program.size(), 4);
  const Timeline timeline{{{0, 1}, {1, 3}, {3, 4}, {4, 5}}};
  EXPECT_DOUBLE_EQ(step_time_s(timeline), 5);
  EXPECT_DOUBLE_EQ(bubble_share(program, timeline), 0.2);
  EXPECT_DOUBLE_EQ(step_time_s(Timeline{}), 0);
}

}  // namespace
}  // namespace mpt
