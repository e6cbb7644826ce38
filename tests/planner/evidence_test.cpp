// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/evidence.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/quantity.h"
#include "core/plan.h"
#include "frameworks/framework.h"
#include "planner/search/arrangement.h"
#include "planner/validate/framework_values.h"
#include "profiler/hardware/catalog.h"

namespace mpt::planner {
namespace {

const std::vector<double> kTen{0.8, 0.9, 0.95, 1.0, 1.0, 1.05, 1.1, 1.2, 1.3, 2.0};

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// One whose fullest rank takes `share` of what a rank has.
Plan plan_with(double share) {
  Plan plan;
  plan.cluster = profiler::load_cluster("dgx-h100:1", std::nullopt);
  plan.layout.execution = frameworks::load_framework("torchtitan", "test");
  plan.cost.source = "kernels";
  const auto room = double(rank_limit_bytes(plan.cluster.device, plan.layout.execution, 0));
  plan.prediction.memory.resize(2);
  plan.prediction.memory[1].peak_bytes = int64_t(share * room);
  return plan;
}

std::string described(const Plan& plan, const std::vector<Evidence>& all) {
  return fmt::format("{}", fmt::join(evidence_beside(plan, all), "\n"));
}

TEST(Evidence, QuantilesLieBetweenNeighbours) {
  EXPECT_DOUBLE_EQ(quantile({3.0}, 0.9), 3.0);
  EXPECT_DOUBLE_EQ(quantile({1.0, 2.0}, 0.25), 1.25);
  EXPECT_DOUBLE_EQ(quantile(kTen, 0.0), 0.8);
  EXPECT_DOUBLE_EQ(quantile(kTen, 1.0), 2.0);
  EXPECT_DOUBLE_EQ(quantile(kTen, 0.9), 1.3 + 0.1 * 0.7);
}

TEST(Evidence, OfStepTimesIsNotShownBesideAGpuThatNobodyMeasured) {
  const std::vector<Evidence> all{{"torchtitan", false, kTen, kTen, {}}};
  Plan plan = plan_with(0.7);
  plan.cost.source = "roofline";
  const std::string text = described(plan, all);
  EXPECT_FALSE(has(text, "times the predicted\n")) << text;
  EXPECT_TRUE(has(text, "step time: no run tells, h100-sxm-80gb is priced by its peak rates alone")) << text;
}

TEST(Evidence, TellsWhetherThereIsRoomForWhatOthersHeld) {
  const std::vector<Evidence> all{{"torchtitan", false, kTen, kTen, {}}};
  const std::string loose = described(plan_with(0.45), all);
  EXPECT_TRUE(has(loose, "step time: 8 of 10 runs (10 in all) took 0.89 to 1.37 times the prediction"))
      << loose;
  EXPECT_TRUE(has(loose, "memory: 9 of 10 runs (10 in all) used at most 1.37 times the prediction")) << loose;
  EXPECT_TRUE(has(loose, "this plan has room for what any of them used")) << loose;
  // 1.3 times 0.8 is too much, 1.2 times is not.
  const Plan tight = plan_with(0.8);
  const std::string text = described(tight, all);
  EXPECT_TRUE(has(text, "2 used so much more that this plan would run out")) << text;
  const auto risk = memory_risk(tight, all);
  ASSERT_TRUE(risk);
  EXPECT_EQ(risk->why, "memory is 80.0% full; 2 of 10 published runs would have run out");
  const auto room = double(rank_limit_bytes(tight.cluster.device, tight.layout.execution, 0));
  const double least = std::stod(risk->option().substr(9)) * double(kGiB) / room;
  EXPECT_LE(least, 1.0 / 1.37);
  EXPECT_GT(least, 0.99 / 1.37);
}

TEST(Evidence, LeavesRoomInTheLimitThatItNames) {
  const std::vector<Evidence> all{{"torchtitan", false, kTen, kTen, {}}};
  EXPECT_FALSE(memory_risk(plan_with(0.7), all)) << "there is room";
  const auto risk = memory_risk(plan_with(0.8), all);
  ASSERT_TRUE(risk);
  Plan within = plan_with(0.8);
  within.prediction.memory[1].peak_bytes = risk->safe_bytes;
  EXPECT_FALSE(memory_risk(within, all));
  EXPECT_FALSE(memory_risk(plan_with(0.8), {{"torchtitan", false, kTen, {1.3, 1.4}, {}}}))
      << "two runs tell nothing";
}

// Where few of a framework's runs published their memory, those of all frameworks tell.
TEST(Evidence, TakesTheMarginOfAllWhereFewPublishedMemory) {
  const std::vector<Evidence> all{{"torchtitan", false, kTen, {1.0}, {}},
                                  {"megatron-bridge", false, kTen, kTen, {}}};
  const MemoryMargin margin = memory_margin("torchtitan", false, all);
  EXPECT_TRUE(margin.of_others);
  EXPECT_EQ(margin.runs, kTen.size() + 1);
  EXPECT_GT(margin.factor, 1.2);
  EXPECT_FALSE(memory_margin("megatron-bridge", false, all).of_others);
  EXPECT_FALSE(memory_margin("nemo", false, all).of_others) << "an alias, as in plans of earlier releases";
  EXPECT_EQ(memory_margin(Execution{}.framework, false, all).factor, 1.0) << "mpt-run's memory is counted";
  EXPECT_EQ(memory_margin("torchtitan", false, {}).factor, 1.0);
  EXPECT_TRUE(memory_risk(plan_with(0.95), all));
  EXPECT_FALSE(memory_risk(plan_with(0.5), all));
}

TEST(Evidence, GivesTheStepInSeconds) {
  const std::vector<Evidence> all{{"torchtitan", false, kTen, kTen, {}}};
  Plan plan = plan_with(0.5);
  plan.prediction.step_time_s = 10.0;
  const auto expected = expected_step(plan, all);
  ASSERT_TRUE(expected);
  EXPECT_NEAR(expected->least_s, 8.9, 1e-9);
  EXPECT_NEAR(expected->most_s, 13.7, 1e-9);
  EXPECT_EQ(expected->runs, 10u);
  EXPECT_FALSE(expected_step(plan, {{"torchtitan", false, {1.0}, kTen, {}}})) << "too few";
  for (const char* source : {"profile", "roofline"}) {
    plan.cost.source = source;
    EXPECT_FALSE(expected_step(plan, all)) << "no run was of prices by " << source;
  }
}

TEST(Evidence, CountsFailuresThatWerePredictedToFit) {
  const std::string text =
      described(plan_with(0.95), {{"torchtitan", false, kTen, kTen, {0.9, 0.98, 1.0, 1.2, 3.0}}});
  EXPECT_TRUE(has(text,
                  "out of memory: 3 of 5 runs that ran out were predicted to fit, at 90.0% of memory or "
                  "more; this plan is at 95.0%"))
      << text;
  EXPECT_FALSE(
      has(described(plan_with(0.95), {{"torchtitan", false, kTen, kTen, {1.2, 3.0}}}), "out of memory"));
  const std::vector<double> refused(10, 1.5);
  EXPECT_TRUE(has(described(plan_with(0.95), {{"torchtitan", false, kTen, kTen, refused}}), "0 of 10 runs"));
}

TEST(Evidence, SaysLittleWhereLittleIsKnown) {
  const Plan plan = plan_with(0.5);
  EXPECT_EQ(
      described(plan, {{"torchtitan", true, kTen, kTen, {}}, {"megatron-bridge", false, kTen, kTen, {}}}),
      "");
  const std::string few = described(plan, {{"torchtitan", false, {1.0}, {}, {}}});
  EXPECT_TRUE(has(few, "step time: 1 published run, too few to tell")) << few;
  EXPECT_TRUE(has(few, "memory: no published run, too few to tell")) << few;
}

TEST(Evidence, OfStepTimesIsNotForMachinesThatWereMeasured) {
  Plan plan = plan_with(0.5);
  plan.cost.source = "profile";
  const std::string text = described(plan, {{"torchtitan", false, kTen, kTen, {}}});
  EXPECT_FALSE(has(text, "step time")) << text;
  EXPECT_TRUE(has(text, "memory: 9 of 10")) << text;
}

TEST(Evidence, ThatIsBuiltInIsSortedAndOfKnownFrameworks) {
  const std::vector<Evidence> all = published_evidence();
  EXPECT_GT(all.size(), 10u);
  std::vector<std::string> names = frameworks::framework_names();
  const std::vector<std::string> published = names_of_published_frameworks();
  names.insert(names.end(), published.begin(), published.end());
  for (const Evidence& e : all) {
    EXPECT_EQ(std::count(names.begin(), names.end(), e.framework), 1) << e.framework;
    EXPECT_TRUE(std::is_sorted(e.step_time.begin(), e.step_time.end())) << e.framework;
    EXPECT_TRUE(std::is_sorted(e.peak_memory.begin(), e.peak_memory.end())) << e.framework;
    EXPECT_TRUE(std::is_sorted(e.failed.begin(), e.failed.end())) << e.framework;
  }
}

}  // namespace
}  // namespace mpt::planner
