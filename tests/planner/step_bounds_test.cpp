// SPDX-License-Identifier: Apache-2.0
#include "planner/search/step_bounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/lower.h"
#include "tests/support/core_plan.h"

namespace mpt::planner {
namespace {

// Stages that differ, and links of which one is slow.
StepCost drawn_cost(int stages, const std::vector<int>& rank_of_stage, double slow, std::mt19937& random) {
  std::uniform_real_distribution<double> seconds(0.5, 1.5);
  // The slow link is above this rank.
  const int far = *std::max_element(rank_of_stage.begin(), rank_of_stage.end()) / 2;
  StepCost cost;
  cost.stages.resize(size_t(stages));
  for (int s = 0; s < stages; ++s) {
    for (double& one : cost.stages[size_t(s)].seconds) one = seconds(random);
    const auto transfer_s = [&](int to) {
      if (to < 0 || to >= stages) return 0.0;
      const auto [low, high] = std::minmax(rank_of_stage[size_t(s)], rank_of_stage[size_t(to)]);
      return low <= far && far < high ? slow : 0.1;
    };
    cost.stages[size_t(s)].seconds[size_t(InstructionKind::transfer_activation)] = transfer_s(s + 1);
    cost.stages[size_t(s)].seconds[size_t(InstructionKind::transfer_gradient)] = transfer_s(s - 1);
  }
  cost.reduce_norm_s = seconds(random);
  return cost;
}

TEST(StepBounds, KnowSlowLinksAndHowManyMicroBatchesAreInFlight) {
  std::mt19937 random(11);
  int count = 0;
  for (const ScheduleEntry& entry : schedule_catalog()) {
    if (entry.made_to_measure) continue;
    double told = 0.0, work = 0.0, steps = 0.0;
    for (int draw = 0; draw < 120; ++draw, ++count) {
      const int p = 2 + int(random() % 7), m = p + int(random() % 40);
      const int v =
          entry.min_chunks + int(random() % unsigned(std::min(entry.max_chunks, 4) - entry.min_chunks + 1));
      Layout layout;
      layout.pipeline = p;
      layout.chunks = v;
      layout.data = 2;
      layout.overlap_transfer = random() % 4 > 0;
      const StepProgram program = lower(layout, entry.generate(p, v, m), test::distinct_footprints(p * v));
      const StepCost cost = drawn_cost(p * v, program.rank_of_stage, draw % 2 == 0 ? 12.0 : 0.1, random);
      const double step_s = step_time_s(simulate(program, cost.durations(program)));
      const double bound_s =
          lower_bounds_s(layout, cost, program.rank_of_stage, m, {1.0, double(p)}).of(entry);
      EXPECT_LE(bound_s, step_s) << entry.name << " " << p << " " << v << " " << m;
      if (draw % 2 != 0) continue;
      StepCost alone = cost;
      for (StageCost& stage : alone.stages) {
        stage.seconds[size_t(InstructionKind::transfer_activation)] = 0.0;
        stage.seconds[size_t(InstructionKind::transfer_gradient)] = 0.0;
      }
      told += bound_s;
      work += lower_bounds_s(layout, alone, program.rank_of_stage, m, {1.0, double(p)}).of(entry);
      steps += step_s;
    }
    EXPECT_GT(told, 1.5 * work) << entry.name;
    if (entry.holds_one_round) {
      EXPECT_GT(told, 0.7 * steps) << entry.name;
    }
  }
  EXPECT_GT(count, 1000);
}

}  // namespace
}  // namespace mpt::planner
