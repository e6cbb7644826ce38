// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <thread>
#include <vector>

#include "models/layer_kinds.h"
#include "models/layer_program.h"
#include "profiler/measure/compute.h"
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

ComputeRequest short_compute(const ModelSpec& model) {
  ComputeRequest request;
  request.model = model;
  request.sequence = 16;
  request.micro_batches = {1};
  request.tensors = {1};
  request.rule.least_samples = 1;
  request.rule.budget_s = 0.0;
  return request;
}

// Every operator can be run by itself, forward and back.
TEST(OperatorRunner, RunsEveryOperatorOfEveryKindOfLayer) {
  for (const ModelSpec& model :
       {test::little_gpt(), test::little_llama(), test::little_mixtral(), test::little_gemma(),
        test::little_oss(), test::little_deepseek(), test::little_hybrid(), test::little_next()}) {
    Layout layout;
    layout.tensor = 2;
    std::vector<models::LayerProgram> programs{models::embedding_program(model, layout, 16),
                                               models::head_program(model, layout, 16)};
    for (int64_t layer = 0; layer < model.layers.count(); ++layer)
      programs.push_back(models::layer_program(model, layer, layout, 16));
    for (const models::LayerProgram& program : programs) {
      for (const models::Operator& op : program.operators) {
        OperatorRunner runner(model, op.shape);
        EXPECT_TRUE(op.shape.kind != models::OperatorKind::linear || !runner.phases().empty()) << op.name;
        for (const Phase phase : runner.phases()) runner.run(phase);
      }
    }
  }
}

TEST(MeasurePieces, TimesALayerOfEveryKind) {
  const ModelSpec model = test::little_hybrid();
  const models::LayerKinds kinds(model);
  ASSERT_EQ(kinds.size(), 3U);
  const ComputeRequest request = short_compute(model);
  int64_t calls = 0;
  std::map<int64_t, int> of_layer;
  for (const PieceTiming& t : measure_pieces(request, [&] { ++calls; })) {
    EXPECT_GT(t.seconds, 0.0);
    of_layer[t.layer] += t.piece == Piece::layer ? 1 : 0;
  }
  const int of_each = 3 * 4;  // recomputes and phases
  const std::map<int64_t, int> expected{
      {kinds.first_layer(0), of_each}, {kinds.first_layer(1), of_each}, {kinds.first_layer(2), of_each}};
  EXPECT_EQ(of_layer, expected);
  const auto operators = measure_operators(request, [&] { ++calls; });
  EXPECT_EQ(calls, layer_measurements(request)) << "what the progress counts to";
  EXPECT_TRUE(std::any_of(operators.begin(), operators.end(), [&](const OperatorTiming& t) {
    return t.shape.kind == models::OperatorKind::attention;
  })) << "the first layer has none";
}

}  // namespace
}  // namespace mpt::profiler
