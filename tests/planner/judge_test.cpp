// SPDX-License-Identifier: Apache-2.0
#include "planner/diagnose/judge.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "models/layer_program.h"
#include "models/zoo.h"

namespace mpt::planner {
namespace {

// Llama 3 70B on 64 GPUs, all of it recomputed, predicted at 23.9 s.
Plan measured_plan(Recompute recompute = Recompute::full) {
  Plan plan;
  plan.model = models::load_model("llama3-70b");
  plan.workload = {256, 4096};
  plan.layout.tensor = 8;
  plan.layout.pipeline = 4;
  plan.layout.data = 2;
  plan.layout.recompute = recompute;
  plan.layout.precision = Precision::bf16;
  plan.layout.layers_per_stage = even_stages(plan.model.layers.count(), 4);
  plan.layout.execution.edit().framework = "some-framework";
  plan.cluster.device.kind = DeviceKind::gpu;
  plan.cluster.device.name = "some GPU";
  plan.cluster.device.bf16_flop_per_s = 989e12;
  plan.cluster.devices = 64;
  plan.prediction.step_time_s = 23.9;
  plan.prediction.model_flop_per_step = models::model_flop_per_token(plan.model, plan.workload.sequence) *
                                        double(plan.workload.tokens_per_step());
  return plan;
}

double predicted_tflops(const Plan& plan) {
  return plan.prediction.model_flop_per_step / plan.prediction.step_time_s / 64.0 / 1e12;
}

// Measured over predicted of 20 runs: 0.81, 0.83, ..., 1.19.
std::vector<Evidence> twenty_runs() {
  SourceEvidence source{"some source", {}, {}, {}, 0};
  for (int n = 0; n < 20; ++n) source.step_time.push_back(0.81 + 0.02 * n);
  return {{{"some-framework"}, {source}}};
}

std::string judged(const Plan& plan, const std::string& text) {
  std::string all;
  for (const std::string& line : judge(plan, parse_measurement(text, "--measured", plan), twenty_runs()))
    all += line + "\n";
  return all;
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TEST(Measurement, UnitsGiveTheSameStep) {
  const Plan plan = measured_plan();
  const double tokens = 256.0 * 4096.0;
  const std::string rate = fmt::format("{}tokens/s", tokens / 20.0),
                    of_one = fmt::format("{} tokens/s/GPU", tokens / 20.0 / 64.0);
  const std::string work = fmt::format("{}TFLOP/s", predicted_tflops(plan) * 23.9 / 20.0);
  for (const std::string& text :
       {std::string("20s"), std::string("20 s"), std::string("20000ms"), rate, of_one, work})
    EXPECT_NEAR(parse_measurement(text, "--measured", plan).step_time_s, 20.0, 1e-9) << text;
}

TEST(Measurement, UtilisationIsOfThePeak) {
  const Plan plan = measured_plan();
  const double least_s = plan.prediction.model_flop_per_step / (64.0 * 989e12);
  for (const char* text : {"MFU 41%", "41% MFU", "mfu=0.41", "MFU: 41 %"})
    EXPECT_NEAR(parse_measurement(text, "--measured", plan).step_time_s, least_s / 0.41, 1e-9) << text;
  const double more = counted_flop(plan, {.recompute = true}) / counted_flop(plan, {});
  EXPECT_NEAR(parse_measurement("HFU 50%", "--measured", plan).step_time_s, more * least_s / 0.5, 1e-9);
  for (const char* text : {"MFU", "MFU 101%", "MFU -3%", "41% MFU of it", "mfu nan", "HFU 0"})
    EXPECT_THROW(parse_measurement(text, "--measured", plan), UserError) << text;
}

TEST(Measurement, TokIsShortForTokens) {
  const Plan plan = measured_plan();
  EXPECT_EQ(parse_measurement("700 tok/s/GPU", "--measured", plan).step_time_s,
            parse_measurement("700tokens/s/GPU", "--measured", plan).step_time_s);
}

TEST(Measurement, SaysWhatWasLikelyMeasuredInstead) {
  const Plan plan = measured_plan();
  const auto refused = [&](const std::string& text) -> std::string {
    try {
      parse_measurement(text, "--measured", plan);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_TRUE(contains(refused(fmt::format("{}s", 23.9 / 128.0)), "time of one micro-batch"))
      << refused("0.18s");
  EXPECT_TRUE(contains(refused("23.9ms"), "milliseconds and seconds")) << refused("23.9ms");
  EXPECT_TRUE(contains(refused(fmt::format("{}TFLOP/s", 64.0 * predicted_tflops(plan))), "all GPUs"));
}

TEST(OtherWork, IsSaidWhereNoCountingExplainsTheLogsRate) {
  const Plan plan = measured_plan();
  const double own = counted_flop(plan, {}) / 64.0 / 20.0;
  EXPECT_EQ(describe_other_work(plan, own, 20.0), "");
  EXPECT_EQ(describe_other_work(plan, 4.0 / 3.0 * own, 20.0), "") << "with recompute";
  EXPECT_EQ(describe_other_work(plan, 0.0, 20.0), "") << "the log says none";
  EXPECT_TRUE(contains(describe_other_work(plan, 3.0 * own, 20.0), "Is it a run of the plan's model"));
  EXPECT_TRUE(contains(describe_other_work(plan, 0.3 * own, 20.0), "Is it a run of the plan's model"));
}

TEST(Measurement, WhatIsNoneIsRefused) {
  const Plan plan = measured_plan();
  for (const char* text : {"", "380", "fast", "-5s", "0s", "nans", "infs", "1e400s", "20sx", "380TFLOP", "s"})
    EXPECT_THROW(parse_measurement(text, "--measured", plan), UserError) << text;
}

TEST(Measurement, NoStepIsFasterThanTheHardware) {
  const Plan plan = measured_plan();
  const double least_s = plan.prediction.model_flop_per_step / (64.0 * 989e12);
  EXPECT_NO_THROW(parse_measurement(fmt::format("{}s", least_s * 1.001), "--measured", plan));
  EXPECT_THROW(parse_measurement(fmt::format("{}s", least_s * 0.999), "--measured", plan), UserError);
  EXPECT_THROW(parse_measurement("990TFLOP/s", "--measured", plan), UserError);
  Plan on_cpu = plan;
  on_cpu.cluster.device.kind = DeviceKind::cpu;
  EXPECT_NO_THROW(parse_measurement(fmt::format("{}s", least_s * 0.5), "--measured", on_cpu));
}

TEST(CountedFlop, IsTheModelsOwnWithoutRecompute) {
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    const Plan plan = measured_plan(recompute);
    EXPECT_NEAR(counted_flop(plan, {}) / plan.prediction.model_flop_per_step, 1.0, 1e-12);
  }
  const Plan none = measured_plan(Recompute::none);
  EXPECT_DOUBLE_EQ(counted_flop(none, {.recompute = true}), counted_flop(none, {}));
}

TEST(CountedFlop, AddsTheForwardOfTheLayersThatAreRecomputed) {
  Plan all = measured_plan();
  all.layout.execution.edit().kept.recomputes_whole_layer = true;
  double head = 0.0;  // forward and backward of a sequence
  for (const models::Operator& op : models::head_program(all.model, {}, all.workload.sequence).operators)
    head += 3.0 * models::forward_flop(op.shape);
  const double own = counted_flop(all, {}), layers = own - head * double(all.workload.global_batch);
  const double added = counted_flop(all, {.recompute = true}) - own;
  EXPECT_NEAR(added / (layers / 3.0), 1.0, 1e-12);
  Plan quarter = all;
  quarter.layout.recomputed_layers = {5, 5, 5, 5};
  EXPECT_NEAR((counted_flop(quarter, {.recompute = true}) - own) / (added / 4.0), 1.0, 1e-9);
}

TEST(CountedFlop, WholeSquaresOfAttentionCountTwice) {
  const Plan plan = measured_plan();
  const double added = counted_flop(plan, {.whole_squares = true}) / counted_flop(plan, {}) - 1.0;
  // Of a layer's forward and backward attention is about s / 6h in full, half of it when causal.
  EXPECT_NEAR(added, 0.5 * 4096.0 / (6.0 * 8192.0), 0.01);
}

TEST(Judge, AsksForRecomputeWhereThatExplainsTheFigure) {
  const Plan plan = measured_plan();
  const std::string text = judged(plan, fmt::format("{}TFLOP/s", predicted_tflops(plan) * 1.28));
  EXPECT_TRUE(contains(text, "1.28 times as fast as predicted")) << text;
  EXPECT_TRUE(contains(text, "Faster than 9 in 10")) << text;
  EXPECT_TRUE(contains(text, "Does your counter count recompute?")) << text;
  EXPECT_TRUE(contains(text, "With recompute counted, ")) << text;
  const std::string without =
      judged(measured_plan(Recompute::none), fmt::format("{}TFLOP/s", predicted_tflops(plan) * 1.28));
  EXPECT_FALSE(contains(without, "Does your counter count recompute?")) << without;
}

TEST(Judge, AFigureNearThePredictionNeedsNoExplanation) {
  const Plan plan = measured_plan();
  const std::string text = judged(plan, fmt::format("{}TFLOP/s", predicted_tflops(plan) * 1.02));
  EXPECT_TRUE(contains(text, "Usual. By published runs, 8 of 10 steps take")) << text;
  EXPECT_FALSE(contains(text, "?")) << text;
  EXPECT_TRUE(contains(text, "no recompute") && contains(text, "With recompute counted, ")) << text;
  const std::string none =
      judged(measured_plan(Recompute::none), fmt::format("{}TFLOP/s", predicted_tflops(plan) * 1.02));
  EXPECT_TRUE(contains(none, "both ways of counting agree")) << none;
}

TEST(Judge, TheBestLayoutIsHeldAgainstTheMeasurement) {
  const Plan plan = measured_plan();
  Plan best = plan;
  best.prediction.step_time_s = 20.0;
  const std::string text = describe_against_best(plan, best, "30s");
  EXPECT_TRUE(contains(text, "20 s per step") && contains(text, "1.50 times as fast as your measured 30 s"))
      << text;
  EXPECT_EQ(describe_against_best(plan, best, ""), "");
}

TEST(Judge, SlowRunsAreCalledSlow) {
  const std::string text = judged(measured_plan(), "30s");
  EXPECT_TRUE(contains(text, "1.26 times the predicted time")) << text;
  EXPECT_TRUE(contains(text, "Slower than 9 in 10")) << text;
}

TEST(Measurement, ARateOfOneGpuIsNotTakenForThatOfAll) {
  const Plan plan = measured_plan();
  const double of_one = 256.0 * 4096.0 / 24.0 / 64.0;
  EXPECT_THROW(parse_measurement(fmt::format("{}tokens/s", of_one), "--measured", plan), UserError);
  EXPECT_NO_THROW(parse_measurement(fmt::format("{}tokens/s/GPU", of_one), "--measured", plan));
  EXPECT_NO_THROW(parse_measurement(fmt::format("{}tokens/s", 64.0 * of_one), "--measured", plan));
}

TEST(Judge, NoRunsAndOwnProfilesAreNoMeasure) {
  Plan plan = measured_plan();
  EXPECT_FALSE(published_range(plan, {}));
  EXPECT_TRUE(published_range(plan, twenty_runs()));
  plan.cost.source = "profile";
  EXPECT_FALSE(published_range(plan, twenty_runs()));
}

}  // namespace
}  // namespace mpt::planner
