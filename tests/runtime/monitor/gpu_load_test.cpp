// SPDX-License-Identifier: Apache-2.0

// What the driver says, read through a library that stands for NVML (LD_LIBRARY_PATH is the test's).

#include "runtime/monitor/gpu_load.h"

#include <gtest/gtest.h>

namespace mpt::runtime {
namespace {

TEST(GpuLoad, ReadsWhatTheDriverTells) {
  std::string reason;
  const auto monitor = open_gpu_monitor(reason);
  ASSERT_NE(monitor, nullptr) << reason;
  const std::vector<GpuLoad> loads = monitor->read();
  ASSERT_EQ(loads.size(), 2u);
  EXPECT_DOUBLE_EQ(loads[0].busy, 0.93);
  EXPECT_DOUBLE_EQ(loads[1].busy, 0.41);
  EXPECT_DOUBLE_EQ(loads[0].memory_busy, 0.58);
  EXPECT_EQ(loads[0].memory_bytes, int64_t{50} << 30);
  EXPECT_DOUBLE_EQ(loads[0].power_w, 650.0);
  EXPECT_DOUBLE_EQ(loads[1].power_w, 0.0);
  EXPECT_EQ(loads[0].clock_mhz, 1755);
}

}  // namespace
}  // namespace mpt::runtime
