// SPDX-License-Identifier: Apache-2.0
#include "runtime/last_screen.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/sample_run.h"

namespace mpt::runtime {
namespace {

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(LastScreen, HasOneErrorWhatWasWrittenAndWhatToType) {
  test::SampleRun s = test::sample_run();
  s.plan.cost.spread = 2.92;
  RunFacts facts{"my plan.json", "run.jsonl", "curves", "run.prom", "", "run.html", "runs/a"};
  facts.saved = "runs/a/step-00000020";
  facts.others_share = 0.5;
  const std::string text = last_screen(s.plan, s.result, facts, Palette());
  for (const char* part :
       {"Measured is 10.0% slower than predicted: 55.1 ms per step, predicted 50.1 ms.", "30.1 points less",
        "a point is 1% of the step", "wrote runs/a/step-00000020 (checkpoint)", "wrote run.html (report)",
        "wrote curves (curves, for tensorboard --logdir)",
        "wrote run.prom (figures of the last step, for Prometheus)", "vary by up to 292%",
        "other programs used 50% of this machine's cores", "mpt-plan diagnose 'my plan.json' run.jsonl",
        "mpt-run export runs/a exported"})
    EXPECT_TRUE(holds(text, part)) << part << "\n" << text;
  EXPECT_FALSE(holds(text, "--resume auto"));
  facts.lost = {{"curves", "curves/events lacks 2 records"}, {"run.prom", "run.prom: no space"}};
  const std::string full = last_screen(s.plan, s.result, facts, Palette());
  EXPECT_FALSE(holds(full, "wrote curves") || holds(full, "wrote run.prom")) << full;
  EXPECT_TRUE(holds(full, "curves/events lacks 2 records") && holds(full, "run.prom: no space")) << full;
  EXPECT_TRUE(holds(full, "wrote run.html (report)")) << full;
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 40);
  s.result.stopped = true;
  EXPECT_TRUE(holds(last_screen(s.plan, s.result, facts, Palette()), "--resume auto"));
}

TEST(LastScreen, CausesAreNamedOnlyWhereThereIsADifference) {
  test::SampleRun s = test::sample_run();
  s.plan.cost.spread = 2.92;
  s.plan.prediction.step_time_s *= 1.1;
  const std::string text = last_screen(s.plan, s.result, {"plan.json"}, Palette());
  EXPECT_TRUE(holds(text, "Measured is as predicted: 55.1 ms per step")) << text;
  EXPECT_FALSE(holds(text, "What may explain"));
  EXPECT_TRUE(holds(text, "the same command with --log run.jsonl"));
  EXPECT_FALSE(holds(text, "wrote"));
}

TEST(LastScreen, CausesAreThoseOfThisRun) {
  test::SampleRun s = test::sample_run();
  EXPECT_TRUE(possible_causes(s.plan, s.result, {"plan.json"}).empty());
  s.plan.cluster.device.kind = DeviceKind::cpu;
  s.result.steps.resize(2);
  RunFacts facts{"plan.json"};
  facts.cores = 2;
  EXPECT_EQ(possible_causes(s.plan, s.result, facts).size(), 2u) << "4 ranks on 2 cores; 2 steps";
}

TEST(LastScreen, OtherProgramsAreACause) {
  const test::SampleRun s = test::sample_run();
  RunFacts facts{"plan.json"};
  facts.others_share = 0.4;
  EXPECT_TRUE(holds(last_screen(s.plan, s.result, facts, Palette()), "other programs used 40%"));
}

TEST(LastScreen, LongPipelinesShowTheStagesFurthestFromTheirPrediction) {
  test::SampleRun s = test::sample_run("1f1b", 12, 12);
  s.result.peak_bytes[10] *= 2;
  const std::string text = last_screen(s.plan, s.result, {"plan.json"}, Palette());
  EXPECT_TRUE(holds(text, "peak memory, stage 10")) << text;
  EXPECT_TRUE(holds(text, "a factor of 2 more")) << text;
  EXPECT_TRUE(holds(text, "(4 more stages are nearer")) << text;
}

TEST(LastScreen, AVerdictFarOffStandsOutInATerminal) {
  test::SampleRun s = test::sample_run();
  s.plan.prediction.step_time_s /= 2;
  EXPECT_TRUE(
      holds(last_screen(s.plan, s.result, {"plan.json"}, Palette::with_colours()), "\033[33mMeasured is"));
}

}  // namespace
}  // namespace mpt::runtime
