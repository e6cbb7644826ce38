// SPDX-License-Identifier: Apache-2.0

// Emulation against simulation: the same program once with real threads, queues and sleeping, once computed.

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/simulate/simulator.h"
#include "reports/run_result.h"
#include "tests/support/emulation.h"
#include "tests/support/make_plan.h"

namespace mpt::runtime {
namespace {

// Durations of one stage differ from another's, so that ranks wait for each other.
Plan plan_of(const char* schedule, int64_t pipeline, int64_t chunks, int64_t micro_batches) {
  test::WantedPlan request{test::little_gpt(8), {micro_batches, 16}};
  request.pipeline = pipeline;
  request.chunks = chunks;
  request.schedule = schedule;
  Plan plan = test::make_plan(request);
  for (InstructionDuration& d : plan.durations) {
    const double stage = 1.0 + 0.2 * double((d.stage * 7) % 3);
    d.seconds = d.kind == InstructionKind::forward               ? 4e-3 * stage
                : d.kind == InstructionKind::backward            ? 8e-3 * stage
                : d.kind == InstructionKind::input_gradient      ? 4e-3 * stage
                : d.kind == InstructionKind::weight_gradient     ? 4e-3 * stage
                : d.kind == InstructionKind::transfer_activation ? 1e-3
                : d.kind == InstructionKind::transfer_gradient   ? 1e-3
                                                                 : 2e-3;
  }
  return plan;
}

// Never faster than simulated, whatever else this machine does, and not so much slower that ranks or streams
// could have waited for each other without need.
TEST(Emulation, AgreesWithTheSimulatorOverSchedulesStagesAndMicroBatches) {
  const std::atomic<bool> stop{false};
  const struct {
    const char* schedule;
    int64_t pipeline, chunks, micro_batches;
  } grid[] = {{"1f1b", 2, 1, 4},        {"1f1b", 4, 1, 8},  {"gpipe", 4, 1, 4},     {"interleaved", 2, 2, 4},
              {"interleaved", 4, 2, 8}, {"zb-h1", 4, 1, 8}, {"zb-h2", 2, 1, 6},     {"zb-v", 4, 2, 8},
              {"v-half", 2, 2, 4},      {"v-min", 2, 2, 4}, {"dualpipe-v", 4, 2, 8}};
  for (const auto& [schedule, pipeline, chunks, micro_batches] : grid) {
    const Plan plan = plan_of(schedule, pipeline, chunks, micro_batches);
    const StepProgram program = program_of(plan);
    const double simulated = step_time_s(planner::simulate(program, durations_of(plan, program)));
    const reports::RunResult result = emulate(plan, 3, 2.0, std::chrono::seconds(60), {}, nullptr, stop);
    double best = result.steps.front().step_time_s;
    for (const reports::StepRecord& r : result.steps) best = std::min(best, r.step_time_s);
    EXPECT_GE(best, 0.999 * simulated) << schedule << " pp" << pipeline;
    EXPECT_LE(best, 1.1 * simulated) << schedule << " pp" << pipeline;
  }
}

TEST(Emulation, RunsHundredsOfRanks) {
  test::WantedPlan request{test::little_gpt(4), {128, 16}};
  request.data = 64;
  request.pipeline = 4;
  const Plan plan = test::make_plan(request);
  const std::atomic<bool> stop{false};
  EXPECT_EQ(emulate(plan, 2, 1.0, std::chrono::seconds(60), {}, nullptr, stop).steps.size(), 2u);
}

}  // namespace
}  // namespace mpt::runtime
