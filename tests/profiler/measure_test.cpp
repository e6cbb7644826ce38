// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "models/layer_program.h"
#include "profiler/measure/operator_runner.h"
#include "profiler/measure/stopping_rule.h"
#include "profiler/measure/transport.h"
#include "runtime/comm/sockets/socket.h"
#include "tests/support/make_plan.h"

namespace mpt::profiler {
namespace {

TEST(StoppingRule, MedianAndSpreadOfKnownSamples) {
  const Measurement m = summarize({5, 1, 3, 2, 4});
  EXPECT_DOUBLE_EQ(m.seconds, 3);
  EXPECT_DOUBLE_EQ(m.spread, 2.0 / 3.0);  // quartiles 2 and 4
  EXPECT_EQ(m.samples, 5);
  EXPECT_DOUBLE_EQ(summarize({7}).seconds, 7);
  EXPECT_DOUBLE_EQ(summarize({7}).spread, 0);
  EXPECT_DOUBLE_EQ(summarize({1, 1, 1, 100}).seconds, 1);
}

TEST(StoppingRule, TakesAtLeastTheSamplesAskedForAndWarmsUp) {
  StoppingRule rule;
  rule.warm_up = 3;
  rule.least_samples = 6;
  rule.budget_s = 0;
  rule.least_sample_s = 0;
  int calls = 0;
  EXPECT_GE(measure(rule, [&] { ++calls; }).samples, 6);
  EXPECT_GE(calls, 9);
}

TEST(StoppingRule, RepeatsWhatIsTooShortForTheClock) {
  StoppingRule rule;
  rule.budget_s = 0;
  rule.least_samples = 1;
  rule.least_sample_s = 1e-3;
  int calls = 0;
  measure(rule, [&] { ++calls; });
  EXPECT_GT(calls, 100);
}

TEST(Transport, BusBandwidthFollowsNcclTests) {
  EXPECT_DOUBLE_EQ(bus_bandwidth_bytes_per_s({TransportOperation::all_reduce, 4, 1000, 1.0, 0}), 1500);
  EXPECT_DOUBLE_EQ(bus_bandwidth_bytes_per_s({TransportOperation::all_gather, 4, 1000, 1.0, 0}), 750);
  EXPECT_DOUBLE_EQ(bus_bandwidth_bytes_per_s({TransportOperation::send_receive, 2, 1000, 1.0, 0}), 1000);
}

int count(const TransportTimings& result, TransportOperation operation, int64_t group, int64_t hosts) {
  int found = 0;
  for (const TransportTiming& t : result.timings) {
    EXPECT_GT(t.seconds, 0.0);
    found += t.operation == operation && t.group == group && t.hosts == hosts;
  }
  return found;
}

TransportRequest short_request(int64_t ranks) {
  TransportRequest request;
  request.most_ranks = ranks;
  request.rule.least_samples = 1;
  request.rule.budget_s = 0.0;
  return request;
}

TEST(Transport, TimesGroupsOfThreads) {
  const TransportTimings result = measure_transport(short_request(4), [] {});
  EXPECT_EQ(result.hosts, 1);
  EXPECT_EQ(count(result, TransportOperation::all_reduce, 2, 1), 6);
  EXPECT_EQ(count(result, TransportOperation::all_gather, 4, 1), 6);
  EXPECT_EQ(count(result, TransportOperation::send_receive, 2, 1), 6);
  EXPECT_EQ(count(result, TransportOperation::send_receive, 4, 1), 0);
  EXPECT_TRUE(measure_transport(short_request(1), [] {}).timings.empty());
}

// Two processes of two hosts with two ranks each: both kinds of group that reach over both.
TEST(Transport, TimesGroupsOverHosts) {
  const int port = runtime::Socket::listen("127.0.0.1", 0).port();
  std::vector<TransportTimings> results(2);
  {
    std::vector<std::jthread> processes;
    for (int p = 0; p < 2; ++p) {
      processes.emplace_back([&, p] {
        TransportRequest request = short_request(2);
        request.launch = {p, 2, "127.0.0.1", port, "test"};
        results[size_t(p)] = measure_transport(request, [] {});
      });
    }
  }
  EXPECT_EQ(results[0].hosts, 2);
  EXPECT_EQ(count(results[0], TransportOperation::all_reduce, 2, 1), 6);
  EXPECT_EQ(count(results[0], TransportOperation::all_reduce, 2, 2), 6);
  EXPECT_EQ(count(results[0], TransportOperation::send_receive, 2, 2), 6);
  EXPECT_EQ(count(results[0], TransportOperation::all_reduce, 4, 2), 6);
  EXPECT_TRUE(results[1].timings.empty()) << "the first process speaks for all";
}

// Every operator of both styles can be run by itself, forward and back.
TEST(OperatorRunner, RunsEveryOperatorOfALayer) {
  for (const ModelSpec& model : {test::little_gpt(), test::little_llama()}) {
    Layout layout;
    layout.tensor = 2;
    for (const auto& program :
         {models::embedding_program(model, layout, 16), models::layer_program(model, 0, layout, 16),
          models::head_program(model, layout, 16)}) {
      for (const models::Operator& op : program.operators) {
        OperatorRunner runner(model, op.shape);
        EXPECT_FALSE(runner.phases().empty()) << op.name;
        for (const Phase phase : runner.phases()) runner.run(phase);
      }
    }
  }
}

}  // namespace
}  // namespace mpt::profiler
