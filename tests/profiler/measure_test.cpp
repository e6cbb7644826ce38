// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "models/layer_program.h"
#include "profiler/measure/operator_runner.h"
#include "profiler/measure/stopping_rule.h"
#include "profiler/measure/transport.h"
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
