// SPDX-License-Identifier: Apache-2.0
#include "planner/simulate/slow_paths.h"

#include <gtest/gtest.h>

#include <random>

#include "core/lower.h"
#include "core/schedule_catalog.h"
#include "planner/simulate/simulator.h"
#include "tests/support/core_plan.h"

namespace mpt::planner {
namespace {

struct SlowPipeline {
  const char* schedule;
  int ranks, chunks, micro_batches;
  bool overlaps;

  StepProgram program() const {
    Layout layout;
    layout.pipeline = ranks;
    layout.chunks = chunks;
    layout.data = 2;
    layout.overlap_transfer = overlaps;
    return lower(layout, find_schedule(schedule, "test").generate(ranks, chunks, micro_batches),
                 test::distinct_footprints(ranks * chunks));
  }
  StepCost cost(std::mt19937& random) const {
    std::uniform_real_distribution<double> seconds(0.0, 1.0);
    StepCost cost;
    cost.stages.resize(size_t(ranks) * size_t(chunks));
    for (StageCost& stage : cost.stages) {
      for (double& s : stage.seconds) s = seconds(random);
    }
    cost.reduce_norm_s = seconds(random);
    return cost;
  }
};

const std::vector<SlowPipeline> kPipelines{{"1f1b", 4, 1, 9, true},        {"1f1b", 4, 1, 9, false},
                                           {"interleaved", 3, 2, 6, true}, {"zb-h1", 5, 1, 8, true},
                                           {"zb-v", 3, 2, 7, false},       {"gpipe", 2, 1, 3, true}};

double whole_step(const StepProgram& program, const StepCost& cost, Timeline& timeline) {
  return step_time_within(program, cost.durations(program), {}, INFINITY, timeline);
}

TEST(SlowPaths, TheCriticalPathOfAStepIsTheStep) {
  std::mt19937 random(1);
  for (const SlowPipeline& p : kPipelines) {
    const StepProgram program = p.program();
    const StepCost cost = p.cost(random);
    Timeline timeline;
    const double step_s = whole_step(program, cost, timeline);
    SlowPaths paths;
    EXPECT_FALSE(paths.take_longer_than(0.0, cost, 1.0)) << "nothing is known";
    paths.add(program, timeline);
    EXPECT_TRUE(paths.take_longer_than(step_s * (1.0 - 1e-6), cost, 1.0)) << p.schedule;
    EXPECT_FALSE(paths.take_longer_than(step_s, cost, 1.0)) << p.schedule;
  }
}

TEST(SlowPaths, AStepThatEndsEarlyLeavesWhatMadeItTooSlow) {
  std::mt19937 random(2);
  for (const SlowPipeline& p : kPipelines) {
    const StepProgram program = p.program();
    const StepCost cost = p.cost(random);
    Timeline timeline;
    const double step_s = whole_step(program, cost, timeline);
    for (const double share : {0.3, 0.8}) {
      if (step_time_within(program, cost.durations(program), {}, share * step_s, timeline) < INFINITY)
        continue;
      ASSERT_LT(timeline.spans.size(), program.instructions.size());
      SlowPaths paths;
      paths.add(program, timeline);
      EXPECT_TRUE(paths.take_longer_than(share * step_s, cost, 1.0)) << p.schedule << " " << share;
      EXPECT_FALSE(paths.take_longer_than(step_s, cost, 1.0)) << p.schedule << " " << share;
    }
  }
}

TEST(SlowPaths, NeverTakeLongerThanTheStepOfOtherCosts) {
  std::mt19937 random(3);
  for (const SlowPipeline& p : kPipelines) {
    const StepProgram program = p.program();
    SlowPaths paths;
    Timeline timeline;
    for (int i = 0; i < 6; ++i) {
      const StepCost cost = p.cost(random);
      const double step_s = whole_step(program, cost, timeline);
      EXPECT_FALSE(paths.take_longer_than(step_s, cost, 1.0)) << p.schedule;
      if (i % 2 == 1) step_time_within(program, cost.durations(program), {}, 0.6 * step_s, timeline);
      paths.add(program, timeline);
    }
  }
}

}  // namespace
}  // namespace mpt::planner
