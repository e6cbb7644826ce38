// SPDX-License-Identifier: Apache-2.0
#include "tests/planner/stream_simulation.h"

#include <gtest/gtest.h>

#include <random>

#include "core/lower.h"
#include "core/schedule_catalog.h"
#include "planner/cost/operator_collectives.h"
#include "planner/cost/step_cost.h"
#include "tests/support/core_plan.h"

namespace mpt::planner {
namespace {

constexpr int kCompute = int(Stream::compute);

int32_t add(StreamProgram& program, int rank, int stream, double seconds, double lost,
            std::vector<int32_t> waits) {
  const TaskLane lane{rank, stream};
  StreamTask task;
  task.seconds = seconds;
  task.lost = lost;
  return program.add(task, std::span(&lane, 1), waits);
}

// What operators are priced by, exposed_s(), is this simulation of two that start together.
TEST(StreamSimulation, TwoBesideEachOtherTakeTheClosedForm) {
  const int tensor = task_stream(CommunicationKind::tensor);
  for (const double compute_s : {0.5, 1.0, 3.0}) {
    for (const double traffic_s : {0.1, 1.0, 2.0, 7.0}) {
      for (const double lost : {0.0, 0.2, 0.46, 1.0}) {
        StreamProgram program;
        add(program, 0, kCompute, compute_s, 0.0, {});
        add(program, 0, tensor, traffic_s, lost, {});
        const std::vector<Span> spans = simulate(program, {});
        EXPECT_NEAR(std::max(spans[0].end_s, spans[1].end_s),
                    compute_s + exposed_s(traffic_s, compute_s, lost), 1e-12);
      }
    }
  }
}

StreamProgram whole_instructions(const StepProgram& steps, const std::vector<double>& durations) {
  StreamProgram program;
  program.ranks = steps.ranks;
  for (InstructionId id = 0; id < steps.size(); ++id) {
    std::vector<TaskLane> lanes;
    for (const Lane& lane : steps.lanes(id)) lanes.push_back({lane.rank, int(lane.stream)});
    StreamTask task;
    task.seconds = durations[size_t(id)];
    task.instruction = id;
    program.add(task, lanes, steps.waits(id));
  }
  return program;
}

// The simulator of searches, of whole instructions, is its independent reference where nothing is lost. On
// shared cores both are one; the slow reference for that is in simulator_test.cpp.
TEST(StreamSimulation, EqualsTheSimulatorOfInstructionsOnWholeOnes) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-v", "zb-h1", "dualpipe-v"}) {
    const ScheduleEntry& entry = find_schedule(schedule, "test");
    const int chunks =
        entry.name == "interleaved" || entry.name == "zb-v" || entry.name == "dualpipe-v" ? 2 : 1;
    Layout layout;
    layout.pipeline = 4;
    layout.chunks = chunks;
    const StepProgram steps =
        lower(layout, entry.generate(4, chunks, 8), test::distinct_footprints(4 * chunks));
    std::vector<double> durations;
    for (InstructionId id = 0; id < steps.size(); ++id) durations.push_back(uniform(random));
    for (const Contention& contention : {Contention{}, Contention{{1.0, 0.9, 0.7, 0.5}, 1}}) {
      const Timeline expected = simulate(steps, durations, contention);
      const std::vector<Span> spans = simulate(whole_instructions(steps, durations), contention);
      for (size_t id = 0; id < spans.size(); ++id) {
        EXPECT_NEAR(spans[id].start_s, expected.spans[id].start_s, 1e-9) << schedule << " " << id;
        EXPECT_NEAR(spans[id].end_s, expected.spans[id].end_s, 1e-9) << schedule << " " << id;
      }
    }
  }
}

// Time in small steps, in each of which everything that may run does, at the rates of the moment.
std::vector<double> ends_in_small_steps(const StreamProgram& program, double dt) {
  const size_t count = program.tasks.size();
  std::vector<double> ends(count, -1.0), left;
  for (const StreamTask& task : program.tasks) left.push_back(task.seconds);
  const auto stream_of = [&](size_t t) { return program.lanes(t)[0].stream; };
  for (double now = 0.0; std::count(ends.begin(), ends.end(), -1.0) > 0; now += dt) {
    std::vector<size_t> running;
    for (size_t t = 0; t < count; ++t) {
      if (ends[t] >= 0.0) continue;
      bool ready = true;
      for (const int32_t wait : program.waits(t)) ready &= ends[size_t(wait)] >= 0.0;
      for (size_t earlier = 0; earlier < t; ++earlier) {
        const TaskLane &a = program.lanes(earlier)[0], &b = program.lanes(t)[0];
        ready &= a.rank != b.rank || a.stream != b.stream || ends[earlier] >= 0.0;
      }
      if (ready) running.push_back(t);
    }
    for (const size_t t : running) {
      double lost = 0.0;
      bool computes = false;
      for (const size_t other : running) {
        if (program.lanes(other)[0].rank != program.lanes(t)[0].rank) continue;
        computes |= stream_of(other) == kCompute;
        lost += stream_of(other) == kCompute ? 0.0 : program.tasks[other].lost;
      }
      const double rate = stream_of(t) == kCompute ? 1.0 / (1.0 + lost)
                          : computes               ? 1.0 / (1.0 + program.tasks[t].lost)
                                                   : 1.0;
      left[t] -= rate * dt;
    }
    for (const size_t t : running) {
      if (left[t] <= 0.0) ends[t] = now + dt;
    }
  }
  return ends;
}

TEST(StreamSimulation, AsInSmallSteps) {
  std::mt19937 random(11);
  for (int round = 0; round < 20; ++round) {
    StreamProgram program;
    program.ranks = 2;
    const int streams[] = {kCompute, kCompute, int(Stream::reduction), task_stream(CommunicationKind::tensor),
                           task_stream(CommunicationKind::expert)};
    for (int t = 0; t < 14; ++t) {
      std::vector<int32_t> waits;
      for (int32_t earlier = 0; earlier < t; ++earlier) {
        if (random() % 6 == 0) waits.push_back(earlier);
      }
      add(program, int(random() % 2), streams[random() % 5], 0.1 + 0.1 * double(random() % 10),
          0.1 * double(random() % 8), waits);
    }
    constexpr double dt = 1e-4;
    const std::vector<double> expected = ends_in_small_steps(program, dt);
    const std::vector<Span> spans = simulate(program, {});
    // Each of up to 14 tasks in a row may end a small step late.
    for (size_t t = 0; t < spans.size(); ++t) EXPECT_NEAR(spans[t].end_s, expected[t], 20 * dt) << round;
  }
}

}  // namespace
}  // namespace mpt::planner
