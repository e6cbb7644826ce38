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
  EXPECT_EQ(loads[1].uuid, "GPU-1");
  EXPECT_DOUBLE_EQ(loads[0].busy, 0.93);
  EXPECT_DOUBLE_EQ(loads[1].busy, 0.41);
  EXPECT_DOUBLE_EQ(loads[0].memory_busy, 0.58);
  EXPECT_EQ(loads[0].memory_bytes, int64_t{50} << 30);
  EXPECT_DOUBLE_EQ(loads[0].power_w, 650.0);
  EXPECT_DOUBLE_EQ(loads[1].power_w, 0.0);
  EXPECT_EQ(loads[0].clock_mhz, 1755);
}

// Counters of the second GPU alone, as if the first were another job's.
class OneGpusCounters final : public HardwareCounters {
 public:
  std::vector<CounterReading> read() override { return {{"GPU-1", 0.75, 0.5, 0.25, 1e12}}; }
};

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

TEST(GpuLoad, CountersStandBesideTheLoadOfTheirGpu) {
  MonitorOptions options = watched("/counters.jsonl");
  int asked = 0;
  options.make_counters = [&](std::string&) {
    ++asked;
    return std::make_unique<OneGpusCounters>();
  };
  testing::internal::CaptureStdout();
  {
    StepMonitor monitor(test::make_plan({test::little_gpt()}), options);
    EXPECT_EQ(asked, 0);
    monitor.on_step(first_step());
    monitor.on_step(first_step());
  }
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_EQ(asked, 1);
  EXPECT_NE(text.find("tensor cores"), std::string::npos) << text;
  EXPECT_NE(text.find("1 TB/s"), std::string::npos) << text;
  const Json row = last_row(options.log.string());
  EXPECT_FALSE(row["gpus"][0].contains("sm_active"));
  EXPECT_EQ(row["gpus"][1]["sm_active"], 0.75);
  EXPECT_EQ(row["gpus"][1]["tensor_active"], 0.5);
  EXPECT_EQ(row["gpus"][1]["dram_share"], 0.25);
  EXPECT_EQ(row["gpus"][1]["dram_bytes_per_s"], 1e12);
}

TEST(GpuLoad, WithoutCountersItSaysWhyOnce) {
  MonitorOptions options = watched("/no_counters.jsonl");
  options.make_counters = [](std::string& reason) {
    reason = "not permitted";
    return std::unique_ptr<HardwareCounters>();
  };
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  {
    StepMonitor monitor(test::make_plan({test::little_gpt()}), options);
    monitor.on_step(first_step());
    monitor.on_step(first_step());
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout().find("tensor cores"), std::string::npos);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "mpt-run: note: the GPUs' counters are not read: not permitted\n");
  EXPECT_FALSE(last_row(options.log.string())["gpus"][0].contains("sm_active"));
}

// Whatever keeps the readings away: it is told once, however long the run is.
TEST(GpuLoad, CountersWithoutReadingsSayWhy) {
  struct Silent final : HardwareCounters {
    explicit Silent(std::vector<CounterReading> r, std::string w)
        : readings(std::move(r)), why(std::move(w)) {}
    std::vector<CounterReading> read() override { return readings; }
    std::string complaint() override { return why; }
    std::vector<CounterReading> readings;
    std::string why;
  };
  const std::string note = "mpt-run: note: GPUs without readings of their counters: ";
  for (const int steps : {2, 20}) {
    for (const bool stranger : {false, true}) {
      MonitorOptions options = watched("/silent_counters.jsonl");
      options.make_counters = [&](std::string&) {
        std::vector<CounterReading> readings;
        if (stranger) readings.push_back({"GPU-of-nobody"});
        return std::make_unique<Silent>(readings, stranger ? "" : "GPU-a: no sample");
      };
      testing::internal::CaptureStdout();
      testing::internal::CaptureStderr();
      {
        StepMonitor monitor(test::make_plan({test::little_gpt()}), options);
        for (int i = 0; i < steps; ++i) monitor.on_step(first_step());
      }
      testing::internal::GetCapturedStdout();
      EXPECT_EQ(testing::internal::GetCapturedStderr(),
                note + (stranger ? "NVML lists other GPUs than those sampled\n" : "GPU-a: no sample\n"));
    }
  }
}

TEST(GpuLoad, CountersAreLeftAloneWithoutWatch) {
  MonitorOptions options = watched("/unwatched.jsonl");
  options.watch = false;
  options.quiet = true;
  options.make_counters = [](std::string&) -> std::unique_ptr<HardwareCounters> {
    ADD_FAILURE() << "asked for";
    return nullptr;
  };
  StepMonitor(test::make_plan({test::little_gpt()}), options).on_step(first_step());
}

}  // namespace
}  // namespace mpt::runtime
