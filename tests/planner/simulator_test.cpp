// SPDX-License-Identifier: Apache-2.0
#include "planner/simulate/simulator.h"

#include <gtest/gtest.h>

#include <random>

#include "core/lower.h"
#include "core/schedule_catalog.h"
#include "tests/support/core_plan.h"

namespace mpt::planner {
namespace {

StepProgram program_of(const std::string& schedule, int ranks, int chunks, int micro_batches) {
  Layout layout;
  layout.pipeline = ranks;
  layout.chunks = chunks;
  return lower(layout, find_schedule(schedule, "test").generate(ranks, chunks, micro_batches),
               test::distinct_footprints(ranks * chunks));
}

std::vector<double> equal_stages(const StepProgram& program) {
  std::vector<double> durations;
  for (const Instruction& i : program.instructions) {
    durations.push_back(i.kind == InstructionKind::forward    ? 1.0
                        : i.kind == InstructionKind::backward ? 2.0
                                                              : 0.0);
  }
  return durations;
}

// With equal stages and free transfers: (p-1)/(m+p-1) for GPipe and 1F1B, (p-1)/(v m + p-1) interleaved
// (Narayanan et al. 2021, arXiv:2104.04473, section 2.2, the bubble over the whole step).
TEST(Simulator, BubbleEqualsTheClosedForms) {
  for (const int p : {1, 2, 3, 4, 8, 16}) {
    for (const int m : {1, 2, 8, 16, 48}) {
      for (const char* name : {"gpipe", "1f1b"}) {
        const StepProgram program = program_of(name, p, 1, m);
        const Timeline timeline = simulate(program, equal_stages(program));
        EXPECT_NEAR(bubble_share(program, timeline), double(p - 1) / double(m + p - 1), 1e-12)
            << name << " " << p << " " << m;
      }
      if (m % p != 0 || p == 1) continue;
      for (const int v : {2, 3, 4}) {
        const StepProgram program = program_of("interleaved", p, v, m);
        const Timeline timeline = simulate(program, equal_stages(program));
        EXPECT_NEAR(bubble_share(program, timeline), double(p - 1) / double(v * m + p - 1), 1e-12)
            << p << " " << m << " " << v;
      }
    }
  }
}

// With forward, input and weight gradient of one unit each and free transfers the work of a rank is 3 v m;
// the last rank begins p-1 units late, and nothing else is lost by zb-h1, zb-h2, zb-v, dualpipe-v (in units
// of a chunk) and list scheduling: tests/core/schedule_test.cpp has the sources. v-half and v-min lose more,
// within their published bounds.
TEST(Simulator, ZeroBubbleSchedulesLoseTheFillingAlone) {
  for (const int p : {2, 3, 4, 8, 13}) {
    for (const int m : {2 * p, 3 * p + 1, 6 * p}) {
      const auto bubble = [&](const char* name, int v) {
        const StepProgram program = program_of(name, p, v, m);
        std::vector<double> durations;
        for (const Instruction& i : program.instructions)
          durations.push_back(i.is_compute() && i.kind != InstructionKind::optimizer_step ? 1.0 : 0.0);
        return bubble_share(program, simulate(program, durations));
      };
      const auto lost = [&](int v, double units) { return units / (3.0 * v * m + units); };
      for (const auto& [name, v] :
           {std::pair{"zb-h1", 1}, {"zb-h2", 1}, {"zb-v", 2}, {"dualpipe-v", 2}, {"generated", 1}}) {
        EXPECT_NEAR(bubble(name, v), lost(v, p - 1), 1e-12) << name << " " << p << " " << m;
      }
      EXPECT_LE(bubble("v-half", 2), lost(2, 3 * (p - 1)) + 1e-12) << p << " " << m;
      EXPECT_LE(bubble("v-min", 2), lost(2, 4 * (p - 1) + (p % 3 == 0 ? 1 : 0)) + 1e-12) << p << " " << m;
    }
  }
}

// Profiled times of a stage (F, B, W and a transfer, in ms) and the bubble rates that the zero-bubble paper
// calculates from them: arXiv:2401.10241, tables 5 and 6, (cost - m (F + B + W)) / cost.
struct PublishedBubble {
  int stages, micro_batches, chunks;
  double forward, input_gradient, weight_gradient, transfer;
  double one_f_one_b, interleaved, zb_h1, zb_h2;
};

TEST(Simulator, BubbleRatesOfTheZeroBubblePaper) {
  const PublishedBubble published[] = {
      {16, 48, 3, 11.347, 11.248, 8.132, 0.377, 0.2552, 0.1104, 0.1397, 0.0672},
      {16, 64, 3, 11.307, 11.254, 8.101, 0.379, 0.2082, 0.0852, 0.1088, 0.0516},
      {16, 128, 3, 11.325, 11.308, 8.109, 0.378, 0.1251, 0.0445, 0.0576, 0.0266},
      {32, 96, 2, 10.419, 10.207, 7.715, 0.408, 0.2646, 0.1493, 0.1421, 0.0641},
      {32, 128, 2, 10.408, 10.204, 7.703, 0.408, 0.2168, 0.1164, 0.1106, 0.0490},
      {32, 256, 2, 10.402, 10.248, 7.698, 0.460, 0.1352, 0.0624, 0.0594, 0.0257},
  };
  for (const PublishedBubble& e : published) {
    const auto rate = [&](const char* name, int chunks) {
      const StepProgram program = program_of(name, e.stages, chunks, e.micro_batches);
      std::vector<double> durations;
      for (const Instruction& i : program.instructions) {
        double ms = 0.0;
        if (i.kind == InstructionKind::forward) ms = e.forward / chunks;
        if (i.kind == InstructionKind::input_gradient) ms = e.input_gradient / chunks;
        if (i.kind == InstructionKind::weight_gradient) ms = e.weight_gradient / chunks;
        if (i.kind == InstructionKind::backward) ms = (e.input_gradient + e.weight_gradient) / chunks;
        if (i.kind == InstructionKind::transfer_activation || i.kind == InstructionKind::transfer_gradient)
          ms = e.transfer;
        durations.push_back(ms);
      }
      // The paper's cost: the longest that a stage takes from its first to its last pass.
      const Timeline timeline = simulate(program, durations);
      std::vector<double> first(size_t(e.stages), 1e300), last(size_t(e.stages), 0.0);
      for (InstructionId id = 0; id < program.size(); ++id) {
        const Instruction& i = program.instructions[size_t(id)];
        if (!i.is_compute() || durations[size_t(id)] == 0.0) continue;
        const auto rank = size_t(program.rank_of_stage[size_t(i.stage)]);
        first[rank] = std::min(first[rank], timeline.spans[size_t(id)].start_s);
        last[rank] = std::max(last[rank], timeline.spans[size_t(id)].end_s);
      }
      double cost = 0.0;
      for (size_t r = 0; r < first.size(); ++r) cost = std::max(cost, last[r] - first[r]);
      const double work = e.micro_batches * (e.forward + e.input_gradient + e.weight_gradient);
      return 1.0 - work / cost;
    };
    const std::string what = std::to_string(e.stages) + " stages, " + std::to_string(e.micro_batches);
    // The paper's own ways of waiting for messages differ by schedule; half a point is what that comes to.
    EXPECT_NEAR(rate("1f1b", 1), e.one_f_one_b, 0.02) << what;
    EXPECT_NEAR(rate("zb-h1", 1), e.zb_h1, 0.02) << what;
    EXPECT_NEAR(rate("zb-h2", 1), e.zb_h2, 0.02) << what;
    EXPECT_NEAR(rate("interleaved", e.chunks), e.interleaved, 0.02) << what;
  }
}

// What cannot be done in time is left out early, what can is the whole simulation.
TEST(Simulator, AStepWithinALimitIsTheStepAndOneBeyondItIsNone) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> seconds(0.0, 1.0);
  for (const char* name : {"1f1b", "zb-h1", "zb-v", "interleaved"}) {
    const int chunks = find_schedule(name, "test").min_chunks;
    for (const int p : {2, 3, 5}) {
      const StepProgram program = program_of(name, p, chunks, 7);
      std::vector<double> durations;
      for (InstructionId id = 0; id < program.size(); ++id) durations.push_back(seconds(random));
      const double whole = step_time_s(simulate(program, durations));
      Timeline timeline;
      for (const double limit : {whole, 1.5 * whole, double(INFINITY)})
        EXPECT_EQ(step_time_within(program, durations, {}, limit, timeline), whole) << name << " " << p;
      EXPECT_EQ(step_time_within(program, durations, {}, 0.5 * whole, timeline), INFINITY);
      const Contention shared{{1.0, 0.6, 0.4}, 1};
      EXPECT_EQ(step_time_within(program, durations, shared, 0.0, timeline),
                step_time_s(simulate(program, durations, shared)));
    }
  }
}

// An independent, slower reading of the same rules: start everything as soon as it may, by sweeping until
// nothing moves.
Timeline by_sweeping(const StepProgram& program, const std::vector<double>& durations) {
  Timeline timeline;
  timeline.spans.resize(durations.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (InstructionId id = 0; id < program.size(); ++id) {
      double start = 0;
      for (InstructionId other = 0; other < id; ++other) {
        bool before = false;
        for (const InstructionId wait : program.waits(id)) before |= wait == other;
        for (const Lane& a : program.lanes(id)) {
          for (const Lane& b : program.lanes(other)) before |= a == b;
        }
        if (before) start = std::max(start, timeline.spans[size_t(other)].end_s);
      }
      const Span span{start, start + durations[size_t(id)]};
      moved |= span != timeline.spans[size_t(id)];
      timeline.spans[size_t(id)] = span;
    }
  }
  return timeline;
}

TEST(Simulator, EqualsASlowReferenceOnRandomDurations) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> seconds(0.0, 1.0);
  for (const char* name : {"gpipe", "1f1b", "interleaved"}) {
    for (const int p : {2, 3}) {
      const StepProgram program = program_of(name, p, std::string(name) == "interleaved" ? 2 : 1, 5);
      std::vector<double> durations;
      for (InstructionId id = 0; id < program.size(); ++id) durations.push_back(seconds(random));
      EXPECT_EQ(simulate(program, durations), by_sweeping(program, durations)) << name;
    }
  }
}

TEST(Simulator, ContentionWithoutSlowdownIsThePlainSimulation) {
  const StepProgram program = program_of("1f1b", 4, 1, 6);
  EXPECT_EQ(simulate(program, equal_stages(program), Contention{{1, 1, 1, 1}, 1}),
            simulate(program, equal_stages(program)));
  EXPECT_EQ(simulate(program, equal_stages(program), Contention{}), simulate(program, equal_stages(program)));
}

// An independent reading of contention: before every event, what runs and how fast is worked out anew from
// what is done so far.
Timeline contended_by_sweeping(const StepProgram& program, const std::vector<double>& durations,
                               const Contention& contention) {
  const auto may_run = [&](InstructionId id, const std::vector<double>& left) {
    for (InstructionId other = 0; other < id; ++other) {
      bool before = false;
      for (const InstructionId wait : program.waits(id)) before |= wait == other;
      for (const Lane& a : program.lanes(id)) {
        for (const Lane& b : program.lanes(other)) before |= a == b;
      }
      if (before && left[size_t(other)] > 0.0) return false;
    }
    return true;
  };
  Timeline timeline;
  timeline.spans.assign(durations.size(), {-1.0, -1.0});
  std::vector<double> left = durations;
  for (double now = 0.0;;) {
    std::vector<InstructionId> running;
    int64_t computing = 0;
    for (InstructionId id = 0; id < program.size(); ++id) {
      if (left[size_t(id)] <= 0.0 || !may_run(id, left)) continue;
      running.push_back(id);
      computing += program.instructions[size_t(id)].is_compute() ? 1 : 0;
      if (timeline.spans[size_t(id)].start_s < 0.0) timeline.spans[size_t(id)].start_s = now;
    }
    if (running.empty()) return timeline;
    const auto rate = [&](InstructionId id) {
      return program.instructions[size_t(id)].is_compute() ? contention.rate(computing) : 1.0;
    };
    double step = 1e300;
    for (const InstructionId id : running) step = std::min(step, left[size_t(id)] / rate(id));
    now += step;
    for (const InstructionId id : running) {
      double& rest = left[size_t(id)];
      rest = rest / rate(id) <= step * (1 + 1e-12) ? 0.0 : rest - step * rate(id);
      if (rest == 0.0) timeline.spans[size_t(id)].end_s = now;
    }
  }
}

TEST(Simulator, ContentionEqualsASlowReferenceOnRandomDurations) {
  std::mt19937 random(17);
  std::uniform_real_distribution<double> seconds(0.01, 1.0);
  for (int round = 0; round < 40; ++round) {
    const bool interleaved = round % 3 == 0;
    const StepProgram program = program_of(interleaved      ? "interleaved"
                                           : round % 3 == 1 ? "1f1b"
                                                            : "gpipe",
                                           2 + round % 3, interleaved ? 2 : 1, 1 + round % 5);
    std::vector<double> durations;
    for (InstructionId id = 0; id < program.size(); ++id) durations.push_back(seconds(random));
    const Contention contention{{1.0, 0.95, 0.7, 0.5}, 1 + round % 2};
    const Timeline fast = simulate(program, durations, contention);
    const Timeline slow = contended_by_sweeping(program, durations, contention);
    for (InstructionId id = 0; id < program.size(); ++id) {
      EXPECT_NEAR(fast.spans[size_t(id)].start_s, slow.spans[size_t(id)].start_s, 1e-9) << round;
      EXPECT_NEAR(fast.spans[size_t(id)].end_s, slow.spans[size_t(id)].end_s, 1e-9) << round;
    }
  }
}

TEST(Simulator, RanksOnOneCoreTakeTurns) {
  // Two ranks, one core: whatever overlaps runs at half speed, so the step takes the sum of all work.
  const StepProgram program = program_of("1f1b", 2, 1, 4);
  const Timeline timeline = simulate(program, equal_stages(program), Contention{{1.0, 0.5}, 1});
  EXPECT_NEAR(step_time_s(timeline), 2 * 4 * 3.0, 1e-9);
}

TEST(Simulator, ContentionNeverSpeedsUpAndKeepsEveryWait) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> seconds(0.01, 1.0);
  for (int round = 0; round < 50; ++round) {
    const StepProgram program =
        program_of(round % 2 == 0 ? "1f1b" : "gpipe", 2 + round % 4, 1, 1 + round % 7);
    std::vector<double> durations;
    for (InstructionId id = 0; id < program.size(); ++id) durations.push_back(seconds(random));
    const Timeline contended = simulate(program, durations, Contention{{1.0, 0.9, 0.6}, 1 + round % 3});
    EXPECT_GE(step_time_s(contended), step_time_s(simulate(program, durations)) * (1 - 1e-12));
    for (InstructionId id = 0; id < program.size(); ++id) {
      EXPECT_GE(contended.spans[size_t(id)].seconds(), durations[size_t(id)] * (1 - 1e-9));
      for (const InstructionId wait : program.waits(id)) {
        EXPECT_GE(contended.spans[size_t(id)].start_s, contended.spans[size_t(wait)].end_s - 1e-12);
      }
    }
  }
}

TEST(Contention, BeyondTheTableTheTotalStays) {
  const Contention contention{{1.0, 0.9, 0.5}, 2};
  EXPECT_DOUBLE_EQ(contention.rate(1), 0.9);        // two ranks
  EXPECT_DOUBLE_EQ(contention.rate(3), 1.5 / 6.0);  // six ranks share what three had
}

}  // namespace
}  // namespace mpt::planner
