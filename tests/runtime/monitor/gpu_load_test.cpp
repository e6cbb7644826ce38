// SPDX-License-Identifier: Apache-2.0

// What the driver says, read through a library that stands for NVML (LD_LIBRARY_PATH is the test's).

#include "runtime/monitor/gpu_load.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/json.h"
#include "runtime/monitor/step_curves.h"
#include "runtime/monitor/step_monitor.h"
#include "tests/support/make_plan.h"

namespace mpt::runtime {
namespace {

// A step of three ranks, of which the last has a GPU that the driver does not know.
reports::StepRecord step_of_gpus(const GpuMonitor& monitor) {
  reports::StepRecord record;
  record.step = 1;
  record.step_time_s = 0.5;
  record.ranks = {{0, 0.3, 0.01}, {1, 0.3, 0.01}, {2, 0.3, 0.01}};
  for (const char* bus_id : {"0000:00:00.0", "0000:1b:00.0", "0000:ff:00.0"})
    monitor.read(bus_id, record.ranks[bus_id[5] == '0' ? 0 : bus_id[5] == '1' ? 1 : 2]);
  return record;
}

TEST(GpuLoad, ReadsWhatTheDriverTells) {
  const auto monitor = open_gpu_monitor();
  ASSERT_NE(monitor, nullptr);
  const std::vector<reports::RankRecord> ranks = step_of_gpus(*monitor).ranks;
  EXPECT_DOUBLE_EQ(ranks[0].gpu_busy, 0.93);
  EXPECT_DOUBLE_EQ(ranks[1].gpu_busy, 0.41);
  EXPECT_DOUBLE_EQ(ranks[0].gpu_memory_busy, 0.58);
  EXPECT_EQ(ranks[0].gpu_memory_bytes, int64_t{50} << 30);
  EXPECT_DOUBLE_EQ(ranks[0].gpu_power_w, 650.0);
  EXPECT_LT(ranks[1].gpu_power_w, 0.0) << "not told";
  EXPECT_EQ(ranks[0].gpu_clock_mhz, 1755);
  EXPECT_EQ(ranks[0].link_sent_bytes % (int64_t{3} << 30), 0);
  EXPECT_EQ(ranks[0].link_received_bytes, 1 << 20);
  EXPECT_LT(ranks[1].link_sent_bytes, 0);
  EXPECT_EQ(ranks[2], (reports::RankRecord{2, 0.3, 0.01}));
}

std::vector<Json> rows_of_log(const std::string& file) {
  std::ifstream in(file);
  std::vector<Json> rows;
  for (std::string line; std::getline(in, line);) rows.push_back(Json::parse(line));
  return rows;
}

TEST(GpuLoad, StandsInTheTableAndInTheLog) {
  const auto gpus = open_gpu_monitor();
  ASSERT_NE(gpus, nullptr);
  MonitorOptions options;
  options.log = testing::TempDir() + "/load.jsonl";
  options.watch = true;
  std::string first, second;
  {
    StepMonitor monitor(test::make_plan({test::little_gpt()}), options);
    testing::internal::CaptureStdout();
    monitor.on_step(step_of_gpus(*gpus));
    first = testing::internal::GetCapturedStdout();
    testing::internal::CaptureStdout();
    monitor.on_step(step_of_gpus(*gpus));
    second = testing::internal::GetCapturedStdout();
  }
  EXPECT_NE(first.find("1755 MHz"), std::string::npos) << first;
  EXPECT_EQ(first.find("GB/s"), std::string::npos) << "there is nothing to compare with\n" << first;
  EXPECT_NE(second.find("12.9 GB/s"), std::string::npos) << "6 GiB in half a second\n" << second;
  const Json ranks = rows_of_log(options.log.string()).back()["ranks"];
  EXPECT_EQ(ranks[1]["gpu_busy"], 0.41);
  EXPECT_EQ(ranks[0]["gpu_clock_mhz"], 1755);
  EXPECT_FALSE(ranks[1].contains("gpu_power_w"));
  EXPECT_FALSE(ranks[2].contains("gpu_busy"));
}

TEST(GpuLoad, StandsInTheMetrics) {
  const auto gpus = open_gpu_monitor();
  ASSERT_NE(gpus, nullptr);
  const reports::StepRecord step = step_of_gpus(*gpus);
  const std::string text = metrics_of(step, "a \"run\"", {"node1", "node1", "node2"});
  const auto has = [&](const std::string& line) {
    EXPECT_NE(text.find(line + "\n"), std::string::npos) << line << " is not in\n" << text;
  };
  has(R"(mpt_gpu_utilization_ratio{run="a \"run\"",rank="0",host="node1"} 0.93)");
  has(R"(mpt_gpu_memory_bandwidth_utilization_ratio{run="a \"run\"",rank="1",host="node1"} 0.58)");
  has(R"(mpt_gpu_link_received_bytes_total{run="a \"run\"",rank="0",host="node1"} 1048576)");
  has(R"(mpt_compute_seconds{run="a \"run\"",rank="2",host="node2"} 0.3)");
  EXPECT_EQ(text.find(R"(mpt_gpu_utilization_ratio{run="a \"run\"",rank="2")"), std::string::npos);
  EXPECT_EQ(text.find(R"(mpt_gpu_power_watts{run="a \"run\"",rank="1")"), std::string::npos);
}

}  // namespace
}  // namespace mpt::runtime
