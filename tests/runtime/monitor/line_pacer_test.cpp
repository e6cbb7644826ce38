// SPDX-License-Identifier: Apache-2.0
#include "runtime/monitor/step_monitor.h"

#include <gtest/gtest.h>

#include <sstream>
#include <vector>

#include "runtime/monitor/machine_load.h"

namespace mpt::runtime {
namespace {

std::vector<int64_t> printed(int64_t steps, double step_s) {
  LinePacer pacer;
  std::vector<int64_t> due;
  for (int64_t step = 1; step <= steps; ++step) {
    if (pacer.is_due(step, steps, 1000.0 + double(step) * step_s)) due.push_back(step);
  }
  return due;
}

TEST(LinePacer, SlowStepsAreNeverSilentForLong) {
  EXPECT_EQ(printed(12, 2.0), (std::vector<int64_t>{1, 2, 3, 6, 9, 10, 12}));
  EXPECT_EQ(printed(5, 60.0), (std::vector<int64_t>{1, 2, 3, 4, 5}));
}

TEST(LinePacer, FastStepsDoNotFloodTheScreen) {
  EXPECT_EQ(printed(1000, 0.02),
            (std::vector<int64_t>{1,   2,   3,   60,  110, 160, 210, 260, 310, 360, 410, 460,
                                  510, 560, 610, 660, 710, 760, 810, 860, 910, 960, 1000}));
}

TEST(LinePacer, AResumedRunBeginsWithItsFirstStep) {
  LinePacer pacer;
  EXPECT_TRUE(pacer.is_due(4711, 9999, 0.01));
}

TEST(MachineLoad, ReadsTheCoresOfProcStat) {
  std::istringstream text("cpu  1000 200 300 4000 500 60 70 80 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n");
  const auto time = read_core_time(text);
  ASSERT_TRUE(time);
  EXPECT_DOUBLE_EQ(time->busy_s / time->idle_s, 1710.0 / 4500.0);
  std::istringstream other("intr 1 2 3\n"), nothing("");
  EXPECT_FALSE(read_core_time(other));
  EXPECT_FALSE(read_core_time(nothing));
}

TEST(MachineLoad, OthersHaveWhatIsBusyAndNotOurs) {
  EXPECT_DOUBLE_EQ(others_share({10.0, 10.0}, {18.0, 12.0}, 3.0), 0.5);
  EXPECT_DOUBLE_EQ(others_share({10.0, 10.0}, {18.0, 12.0}, 9.0), 0.0) << "clocks differ a little";
  EXPECT_DOUBLE_EQ(others_share({10.0, 10.0}, {10.0, 10.0}, 0.0), 0.0);
}

}  // namespace
}  // namespace mpt::runtime
