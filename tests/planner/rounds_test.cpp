// SPDX-License-Identifier: Apache-2.0
#include "planner/simulate/rounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/lower.h"
#include "core/schedule_catalog.h"
#include "planner/search/program_cache.h"
#include "planner/simulate/simulator.h"
#include "planner/simulate/slow_paths.h"
#include "tests/support/core_plan.h"

namespace mpt::planner {
namespace {

constexpr double kDigits = 1e-12;  // sums in another order

// A schedule whose middle repeats, of drawn stages.
struct DrawnStep {
  const ScheduleEntry& entry;
  int ranks, chunks;
  Layout layout;
  StepCost cost;

  DrawnStep(const ScheduleEntry& entry, int ranks, int chunks, double spread, std::mt19937& random)
      : entry(entry), ranks(ranks), chunks(chunks) {
    layout.schedule = entry.name;
    layout.pipeline = ranks;
    layout.chunks = chunks;
    layout.data = 2;
    layout.overlap_transfer = random() % 4 > 0;
    draw(spread, random);
  }
  // Stages differ by up to the spread; transfers over some links take up to ten times as long.
  void draw(double spread, std::mt19937& random) {
    std::uniform_real_distribution<double> seconds(0.5, 1.5);
    cost.stages.assign(size_t(ranks) * size_t(chunks), {});
    for (size_t kind = 0; kind < kInstructionKinds; ++kind) {
      const double all = seconds(random);
      for (StageCost& stage : cost.stages) {
        const bool transfer = kind == size_t(InstructionKind::transfer_activation) ||
                              kind == size_t(InstructionKind::transfer_gradient);
        const double slow = transfer && random() % 5 == 0 ? 10.0 * seconds(random) : 1.0;
        stage.seconds[kind] = slow * all * (1.0 + spread * (seconds(random) - 1.0));
      }
    }
    cost.reduce_norm_s = seconds(random);
  }
  StepProgram program(int micro_batches) const {
    return lower(layout, entry.generate(ranks, chunks, micro_batches),
                 test::distinct_footprints(ranks * chunks));
  }
  double step_s(const StepProgram& program) const {
    return step_time_s(simulate(program, cost.durations(program)));
  }
};

template <class See>
int each_drawn(int draws, See&& see) {
  std::mt19937 random(7);
  int count = 0;
  for (const ScheduleEntry& entry : schedule_catalog()) {
    if (!entry.repeats) continue;
    for (const int p : {1, 2, 3, 5, 8}) {
      for (int v = entry.min_chunks; v <= std::min(entry.max_chunks, 4); ++v) {
        if (p == 1 && v > 1) continue;
        for (const double spread : {0.0, 0.02, 1.0}) {
          for (int draw = 0; draw < draws; ++draw, ++count)
            see(DrawnStep(entry, p, v, spread, random), random);
        }
      }
    }
  }
  return count;
}

TEST(Rounds, AFewTellTheTimeOfAllOrBoundIt) {
  int exact = 0;
  const int all = each_drawn(7, [&](const DrawnStep& d, std::mt19937& random) {
    const int few = int(kFewestRounds) * d.ranks + int(random() % unsigned(d.ranks)), rounds = 23;
    const StepProgram program = d.program(few), more = d.program(few + rounds * d.ranks);
    const Timeline timeline = simulate(program, d.cost.durations(program));
    const RepeatedStep range = with_more_rounds(program, timeline, rounds);
    const double whole_s = d.step_s(more);
    exact += range.most_s - range.least_s <= kDigits * whole_s ? 1 : 0;
    EXPECT_LE(range.least_s, whole_s * (1.0 + kDigits)) << d.entry.name << " " << d.ranks << " " << d.chunks;
    EXPECT_GE(range.most_s, whole_s * (1.0 - kDigits)) << d.entry.name << " " << d.ranks << " " << d.chunks;
    EXPECT_EQ(program.slots, more.slots) << d.entry.name << " " << d.ranks << " " << d.chunks;
  });
  EXPECT_GE(all, 1000);
  EXPECT_GT(exact, all / 2);
}

// What a search makes of them: the very time, whatever it took to know it.
TEST(Rounds, ASimulatedStepTakesAsLongAsItsWholeProgram) {
  int by_few = 0, too_slow = 0;
  const int all = each_drawn(1, [&](const DrawnStep& d, std::mt19937& random) {
    const int count = int(kFewestRounds) * d.ranks * 3 + int(random() % unsigned(d.ranks));
    const StepProgram whole = d.program(count);
    const double whole_s = d.step_s(whole);
    ProgramCache programs;
    SimulatedStep step;
    for (const double limit_s : {double(INFINITY), 0.9 * whole_s}) {
      programs.simulate({d.layout, count, false, d.cost, {}, limit_s}, step);
      by_few += step.more_micro_batches > 0 ? 1 : 0;
      too_slow += std::isinf(step.step_time_s) ? 1 : 0;
      if (std::isinf(step.step_time_s)) {
        EXPECT_LT(limit_s, whole_s);
      } else {
        EXPECT_NEAR(step.step_time_s, whole_s, kDigits * whole_s) << d.entry.name << " " << d.ranks;
      }
    }
  });
  EXPECT_GT(by_few, all);
  EXPECT_GT(too_slow, 0);
}

TEST(Rounds, TheLongerPathIsAPathOfTheWholeStepWhateverItsDurations) {
  int near = 0, whole_backwards = 0;
  each_drawn(3, [&](DrawnStep d, std::mt19937& random) {
    const int few = int(kFewestRounds) * d.ranks + int(random() % unsigned(d.ranks)), more = 60 * d.ranks;
    const StepProgram program = d.program(few), whole = d.program(few + more);
    SlowPaths paths;
    paths.add(program, simulate(program, d.cost.durations(program)), more);
    const double whole_s = d.step_s(whole);
    if (!d.entry.splits_backward) {
      ++whole_backwards;
      near += paths.take_longer_than(0.99 * whole_s, d.cost, 1.0) ? 1 : 0;
    }
    EXPECT_FALSE(paths.take_longer_than(whole_s, d.cost, 1.0)) << d.entry.name << " " << d.ranks;
    for (int other = 0; other < 4; ++other) {
      d.draw(1.0, random);
      EXPECT_FALSE(paths.take_longer_than(d.step_s(whole), d.cost, 1.0)) << d.entry.name << " " << d.ranks;
    }
  });
  EXPECT_GT(near, whole_backwards * 9 / 10) << "else it teaches nothing";
}

}  // namespace
}  // namespace mpt::planner
