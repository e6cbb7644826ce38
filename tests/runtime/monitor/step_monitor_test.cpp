// SPDX-License-Identifier: Apache-2.0
#include "runtime/monitor/step_monitor.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "tests/support/make_plan.h"

namespace mpt::runtime {
namespace {

reports::StepRecord record(int64_t step, double loss) {
  reports::StepRecord r;
  r.step = step;
  r.loss = loss;
  r.step_time_s = 0.5;
  r.tokens_per_s = 1000;
  r.ranks = {{0, 0.3, 0.01}, {1, 0.31, 0.02}};
  r.ranks[1].peak_bytes = 4096;
  return r;
}

std::vector<Json> rows_of(const std::string& file) {
  std::ifstream in(file);
  std::vector<Json> rows;
  for (std::string line; std::getline(in, line);) rows.push_back(Json::parse(line));
  return rows;
}

using Failures = std::map<std::filesystem::path, std::string>;

TEST(StepMonitor, WritesARowPerStepAndContinuesALog) {
  const Plan plan = test::make_plan({test::little_gpt()});
  MonitorOptions options;
  options.log = testing::TempDir() + "/monitor.jsonl";
  options.quiet = true;
  {
    StepMonitor monitor(plan, options);
    monitor.on_step(record(1, 5.0));
    reports::StepRecord bad = record(2, NAN);
    bad.skipped = true;
    bad.stragglers = {1};
    monitor.on_step(bad);
  }
  options.done = 2;
  StepMonitor(plan, options).on_step(record(3, 4.0));
  const std::vector<Json> rows = rows_of(options.log.string());
  ASSERT_EQ(rows.size(), 5u);  // a header of each run
  EXPECT_EQ(rows[0]["format"], "mpt-run-log");
  EXPECT_EQ(rows[1]["loss"], 5.0);
  EXPECT_EQ(rows[1]["ranks"].size(), 2u);
  EXPECT_EQ(rows[1]["ranks"][1]["peak_bytes"], 4096);
  EXPECT_FALSE(rows[1].contains("skipped"));
  EXPECT_TRUE(rows[2]["loss"].is_null());
  EXPECT_EQ(rows[2]["skipped"], true);
  EXPECT_EQ(rows[2]["stragglers"][0], 1);
  EXPECT_EQ(rows[4]["step"], 3);
}

TEST(StepMonitor, ALogThatCannotBeIsAUserError) {
  MonitorOptions options;
  options.log = "/no/such/folder/run.jsonl";
  EXPECT_THROW(StepMonitor(test::make_plan({test::little_gpt()}), options), UserError);
}

TEST(StepMonitor, AFullDiskIsToldAndDoesNotEndTheRun) {
  MonitorOptions options;
  options.log = "/dev/full";
  options.quiet = true;
  StepMonitor monitor(test::make_plan({test::little_gpt()}), options);
  monitor.on_step(record(1, 5.0));
  EXPECT_EQ(monitor.failures(),
            (Failures{{"/dev/full",
                       "/dev/full lacks 2 records, which could not be written (No space left on device)"}}));
  options.log = testing::TempDir() + "/monitor.jsonl";
  EXPECT_EQ(StepMonitor(test::make_plan({test::little_gpt()}), options).failures(), Failures());
}

// The very first record of an event file, too.
TEST(StepMonitor, CurvesOnAFullDiskAreToldFromTheirFirstRecordOn) {
  MonitorOptions options;
  options.tensorboard = testing::TempDir() + "/full_curves";
  options.quiet = true;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{10, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  StepMonitor monitor(test::make_plan({test::little_gpt()}), options);
  monitor.on_step(record(1, 5.0));
  monitor.on_step(record(2, 5.0));
  setrlimit(RLIMIT_FSIZE, &before);
  const Failures failures = monitor.failures();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures.begin()->first, options.tensorboard);
  EXPECT_NE(failures.begin()->second.find("lacks 3 records"), std::string::npos) << failures.begin()->second;
}

// Files may not grow beyond a limit, as on a full disk.
TEST(LogFile, HoldsNoHalfLine) {
  const std::string file = testing::TempDir() + "/limited.jsonl";
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  LogFile log(file, false, "--log");
  EXPECT_TRUE(log.add("first\n"));
  const rlimit limit{10, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  const bool told = !log.add("second line\n"), again = log.add("third line\n");
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(told);
  EXPECT_TRUE(again);  // told once
  EXPECT_TRUE(log.add("last\n"));
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  EXPECT_EQ(text.str(), "first\nlast\n");
  EXPECT_NE(log.failure().find("limited.jsonl lacks 2 records"), std::string::npos) << log.failure();
}

TEST(Stragglers, AreThoseFarAboveTheirStagesMedian) {
  std::vector<reports::RankRecord> ranks;
  std::vector<int64_t> stage_of;
  for (int64_t rank = 0; rank < 8; ++rank) {
    ranks.push_back({rank, rank < 4 ? 1.0 : 3.0});
    stage_of.push_back(rank / 4);
  }
  EXPECT_TRUE(reports::find_stragglers(ranks, stage_of).empty());  // a heavier stage is no straggler
  ranks[2].compute_s = 1.8;
  EXPECT_EQ(reports::find_stragglers(ranks, stage_of), (std::vector<int64_t>{2}));
}

}  // namespace
}  // namespace mpt::runtime
