// SPDX-License-Identifier: Apache-2.0
#include "runtime/monitor/step_monitor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "core/error.h"
#include "core/json.h"
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
  options.append = true;
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

std::string ask(int port) {
  const Socket socket =
      Socket::connect("127.0.0.1", port, std::chrono::steady_clock::now() + std::chrono::seconds(5));
  socket.set_receive_timeout(std::chrono::seconds(5));
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
  socket.send_all(request.data(), request.size());
  std::string answer;
  char c = 0;
  try {
    while (socket.receive_all(&c, 1)) answer += c;
  } catch (const RunError&) {
  }
  return answer;
}

TEST(MetricsServer, AnswersWithTheNewestStep) {
  MetricsServer server(0);
  server.set(record(1, 5.0));
  server.set(record(7, 4.5));
  for (int i = 0; i < 3; ++i) {
    const std::string answer = ask(server.port());
    EXPECT_EQ(answer.find("HTTP/1.1 200 OK"), 0u);
    EXPECT_NE(answer.find("\nmpt_step 7\n"), std::string::npos) << answer;
    EXPECT_NE(answer.find("mpt_rank_peak_memory_bytes{rank=\"1\"} 4096"), std::string::npos);
  }
}

TEST(MetricsServer, APortInUseIsAUserError) {
  const MetricsServer server(0);
  EXPECT_THROW(MetricsServer(server.port()), UserError);
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
