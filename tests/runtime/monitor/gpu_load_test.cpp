// SPDX-License-Identifier: Apache-2.0

// What the driver says, read through a library that stands for NVML (LD_LIBRARY_PATH is the test's).

#include "runtime/monitor/gpu_load.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/json.h"
#include "runtime/monitor/step_monitor.h"
#include "tests/support/make_plan.h"

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

Json last_row(const std::string& file) {
  std::ifstream in(file);
  std::string last;
  for (std::string line; std::getline(in, line);) last = line;
  return Json::parse(last);
}

MonitorOptions watched(const std::string& log) {
  MonitorOptions options;
  options.log = testing::TempDir() + log;
  options.watch = options.gpus = true;
  return options;
}

reports::StepRecord first_step() {
  reports::StepRecord record;
  record.step = 1;
  record.ranks = {{0, 0.3, 0.01}};
  return record;
}

TEST(GpuLoad, StandsInTheTableAndInTheLog) {
  const MonitorOptions options = watched("/load.jsonl");
  testing::internal::CaptureStdout();
  StepMonitor(test::make_plan({test::little_gpt()}), options).on_step(first_step());
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_NE(text.find("1755 MHz"), std::string::npos) << text;
  const Json row = last_row(options.log.string());
  EXPECT_EQ(row["gpus"][1]["busy"], 0.41);
  EXPECT_EQ(row["gpus"][0]["clock_mhz"], 1755);
}

}  // namespace
}  // namespace mpt::runtime
