// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/evidence.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/plan.h"
#include "core/quantity.h"
#include "models/framework.h"
#include "planner/search/arrangement.h"
#include "profiler/hardware/catalog.h"

namespace mpt::planner {
namespace {

const std::vector<double> kTen{0.8, 0.9, 0.95, 1.0, 1.0, 1.05, 1.1, 1.2, 1.3, 2.0};

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// One whose fullest rank takes `share` of what a rank has.
Plan plan_with(double share) {
  Plan plan;
  plan.cluster = profiler::load_cluster("dgx-h100:1", std::nullopt);
  plan.layout.execution = models::load_framework("torchtitan", "test");
  plan.cost.source = "kernels";
  const auto room = double(rank_limit_bytes(plan.cluster.device, plan.layout.execution, 0));
  plan.prediction.memory.resize(2);
  plan.prediction.memory[1].peak_bytes = int64_t(share * room);
  return plan;
}

std::string described(Plan plan, const std::vector<Evidence>& all) {
  plan.evidence = evidence_beside(plan, all);
  return describe_evidence(plan);
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
  const std::string loose = described(plan_with(0.7), all);
  EXPECT_TRUE(has(loose, "step time: eight in ten of 10 took 0.89 to 1.37 times the predicted")) << loose;
  EXPECT_TRUE(has(loose, "nine in ten of 10 held at most 1.37 times the predicted, for which there is room"))
      << loose;
  // 1.3 times 0.8 is too much, 1.2 times is not.
  const Plan tight = plan_with(0.8);
  const auto room = double(rank_limit_bytes(tight.cluster.device, tight.layout.execution, 0));
  const std::string text = described(tight, all);
  EXPECT_TRUE(has(text, "; 2 held so much more that this plan would not fit")) << text;
  const size_t at = text.find("--memory ");
  ASSERT_NE(at, std::string::npos) << text;
  const double least = std::stod(text.substr(at + 9)) * double(kGiB) / room;
  EXPECT_LE(least, 1.0 / 1.37);
  EXPECT_GT(least, 0.99 / 1.37);
}

TEST(Evidence, LeavesRoomInTheLimitThatItNames) {
  const std::vector<Evidence> all{{"torchtitan", false, kTen, kTen, {}}};
  EXPECT_EQ(limit_with_room(plan_with(0.7), all), std::nullopt) << "there is room";
  const auto limit = limit_with_room(plan_with(0.8), all);
  ASSERT_TRUE(limit);
  Plan within = plan_with(0.8);
  within.prediction.memory[1].peak_bytes = *limit;
  EXPECT_EQ(limit_with_room(within, all), std::nullopt);
  EXPECT_EQ(limit_with_room(plan_with(0.8), {{"torchtitan", false, kTen, {1.3, 1.4}, {}}}), std::nullopt)
      << "two runs tell nothing";
}

TEST(Evidence, CountsFailuresThatWerePredictedToFit) {
  const std::string text =
      described(plan_with(0.95), {{"torchtitan", false, kTen, kTen, {0.9, 0.98, 1.0, 1.2, 3.0}}});
  EXPECT_TRUE(has(text,
                  "out of memory: 3 of 5 layouts that ran out of it were predicted to fit, with 90.0% of "
                  "the room or more; this plan takes 95.0%"))
      << text;
  EXPECT_FALSE(
      has(described(plan_with(0.95), {{"torchtitan", false, kTen, kTen, {1.2, 3.0}}}), "out of memory"));
  const std::vector<double> refused(10, 1.5);
  EXPECT_TRUE(
      has(described(plan_with(0.95), {{"torchtitan", false, kTen, kTen, refused}}), "0 of 10 layouts"));
}

TEST(Evidence, SaysLittleWhereLittleIsKnown) {
  const Plan plan = plan_with(0.5);
  EXPECT_EQ(described(plan, {{"torchtitan", true, kTen, kTen, {}}, {"nemo", false, kTen, kTen, {}}}), "");
  const std::string few = described(plan, {{"torchtitan", false, {1.0}, {}, {}}});
  EXPECT_TRUE(has(few, "step time: 1 published it, too few to tell")) << few;
  EXPECT_TRUE(has(few, "peak memory: none published it, too few to tell")) << few;
}

TEST(Evidence, OfStepTimesIsNotForMachinesThatWereMeasured) {
  Plan plan = plan_with(0.5);
  plan.cost.source = "profile";
  const std::string text = described(plan, {{"torchtitan", false, kTen, kTen, {}}});
  EXPECT_FALSE(has(text, "step time")) << text;
  EXPECT_TRUE(has(text, "peak memory")) << text;
}

TEST(Evidence, ThatIsBuiltInIsSortedAndOfKnownFrameworks) {
  const std::vector<Evidence> all = published_evidence();
  EXPECT_GT(all.size(), 10u);
  const std::vector<std::string> names = models::framework_names();
  for (const Evidence& e : all) {
    EXPECT_EQ(std::count(names.begin(), names.end(), e.framework), 1) << e.framework;
    EXPECT_TRUE(std::is_sorted(e.step_time.begin(), e.step_time.end())) << e.framework;
    EXPECT_TRUE(std::is_sorted(e.peak_memory.begin(), e.peak_memory.end())) << e.framework;
    EXPECT_TRUE(std::is_sorted(e.failed.begin(), e.failed.end())) << e.framework;
  }
}

}  // namespace
}  // namespace mpt::planner
