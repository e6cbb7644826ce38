// SPDX-License-Identifier: Apache-2.0

// Logs of frameworks beside the plan that they are said to be runs of: what is compared, what is refused, and
// what is said without a step time.

#include "planner/diagnose/run_log.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "base/error.h"
#include "base/json.h"
#include "planner/diagnose/diagnose.h"
#include "planner/diagnose/trouble.h"
#include "tests/support/make_plan.h"

namespace mpt::planner {
namespace {

class RunLogTest : public ::testing::Test {
 protected:
  RunLogTest() : file_(::testing::TempDir() + "run_log_test.log") {
    test::WantedPlan wanted{test::little_gpt(), {8, 16}};
    wanted.pipeline = wanted.data = 2;
    plan_ = test::make_plan(wanted);
    plan_.cluster.device.kind = DeviceKind::gpu;
  }
  void TearDown() override { std::remove(file_.c_str()); }

  MeasuredRun read(const std::string& text) const {
    write_file_atomically(file_, text);
    return read_run_log(read_file(file_), file_, plan_);
  }
  // What the log is refused for, at which line.
  std::string refused(const std::string& text) const {
    try {
      read(text);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }
  static std::string step(int64_t number, double seconds, int64_t batch = 8, const std::string& more = "") {
    return fmt::format(
        " iteration {}/ 100 | elapsed time per iteration (ms): {} | global batch size: {} | {}\n", number,
        seconds * 1e3, batch, more);
  }

  std::string file_;
  Plan plan_;
};

bool says(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TEST_F(RunLogTest, TakesTheMedianWithoutTheFirstSteps) {
  std::string text;
  for (int64_t n = 1; n <= 9; ++n) text += step(n, n <= 3 ? 9.0 : 2.0);
  const MeasuredRun run = read(text);
  EXPECT_DOUBLE_EQ(run.step_time_s, 2.0);
  ASSERT_EQ(run.steps.size(), 6u);
  EXPECT_EQ(run.steps.front().step, 4);
  EXPECT_TRUE(run.troubles.empty());
}

// A run that goes on in another layout writes a header of its own into the same log.
TEST_F(RunLogTest, OfSeveralRunsThoseOfThePlanCount) {
  plan_.program_digest = "mine";
  const auto rows = [](const std::string& digest, int64_t first, double seconds) {
    std::string text = fmt::format("{{\"format\":\"mpt-run-log\",\"program_digest\":\"{}\"}}\n", digest);
    for (int64_t n = first; n < first + 9; ++n)
      text += fmt::format("{{\"step\":{},\"loss\":1.0,\"step_time_s\":{}}}\n", n, seconds);
    return text;
  };
  EXPECT_DOUBLE_EQ(read(rows("other", 1, 5.0) + rows("mine", 10, 2.0)).step_time_s, 2.0);
  EXPECT_DOUBLE_EQ(read(rows("mine", 1, 2.0) + rows("other", 10, 5.0)).step_time_s, 2.0);
  const MeasuredRun twice = read(rows("mine", 1, 2.0) + rows("other", 10, 5.0) + rows("mine", 19, 4.0));
  EXPECT_EQ(twice.steps.back().step, 27);
  EXPECT_GT(twice.step_time_s, 2.0 - 1e-9);
  EXPECT_LT(twice.step_time_s, 4.0 + 1e-9) << "no step of the other layout";
  EXPECT_DOUBLE_EQ(read(rows("older", 1, 5.0) + rows("other", 10, 3.0)).step_time_s, 3.0)
      << "without a run of the plan the last one counts";
}

TEST_F(RunLogTest, RefusesTheLogOfAnotherBatchLengthOrWorld) {
  const std::string batch = refused(step(1, 2.0, 1024));
  EXPECT_TRUE(says(batch, "at line 1") && says(batch, "a global batch of 1,024") &&
              says(batch, "--global-batch 1024"))
      << batch;
  const std::string world = refused("using world size: 64, data-parallel size: 64\n" + step(1, 2.0));
  EXPECT_TRUE(says(world, "a world size of 64") && says(world, "expected 4")) << world;
  const std::string length = refused("  seq_length ....... 4096\n" + step(1, 2.0));
  EXPECT_TRUE(says(length, "a sequence length of 4,096")) << length;
  EXPECT_EQ(refused("using world size: 4, data-parallel size: 2\n  seq_length ....... 16\n" + step(1, 2.0)),
            "");
}

TEST_F(RunLogTest, OfABatchThatGrowsThePlannedOneCounts) {
  const MeasuredRun run = read(step(1, 1.0, 4) + step(2, 1.0, 4) + step(3, 2.0, 8) + step(4, 2.0, 8));
  EXPECT_DOUBLE_EQ(run.step_time_s, 2.0);
  EXPECT_EQ(run.steps.size(), 2u);
}

TEST_F(RunLogTest, CountsStepsThatWereNotFiniteOrSkipped) {
  const std::string nan = "number of skipped iterations: 1 | number of nan iterations: 1 |";
  const MeasuredRun run = read(step(1, 2.0) + step(2, 2.0, 8, nan) + step(3, 2.0, 8, nan));
  ASSERT_EQ(run.troubles.size(), 2u);
  EXPECT_EQ(run.troubles[0].finding,
            "2 steps (the first is step 2) had a loss or gradients that are not finite.");
  EXPECT_EQ(run.troubles[1].finding, "2 steps (the first is step 2) left the weights as they were.");
}

TEST_F(RunLogTest, NamesTheRankThatRanOutOfMemory) {
  const std::string error =
      "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total "
      "capacity "
      "of 79.11 GiB of which 1.50 GiB is free.\n";
  const MeasuredRun run = read(step(1, 2.0) + error);
  ASSERT_EQ(run.troubles.size(), 1u);
  EXPECT_TRUE(says(run.troubles[0].finding,
                   "Rank 3 ran out of GPU memory (line 2), asking for 2.50 GiB more of "
                   "79.1 GiB"))
      << run.troubles[0].finding;
  const MeasuredRun none = read(error);
  EXPECT_EQ(none.step_time_s, 0.0) << "a log without a step still says why";
  EXPECT_EQ(none.troubles.size(), 1u);
  const MeasuredRun old = read(
      "RuntimeError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 1; 31.75 GiB total capacity; 28 "
      "GiB "
      "already allocated)\n");
  EXPECT_TRUE(says(old.troubles[0].finding,
                   "A rank ran out of GPU memory (line 1), asking for 512 MiB more of "
                   "31.8 GiB") ||
              says(old.troubles[0].finding, "512.0 MiB more of 31.8 GiB"))
      << old.troubles[0].finding;
  EXPECT_TRUE(says(read("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.\n").troubles[0].finding,
                   "A host ran out of memory (line 1: "));
}

TEST_F(RunLogTest, SaysWhoWaitedForACollectiveAndWhoDidNot) {
  std::string text = step(1, 2.0);
  for (const int rank : {0, 1, 3})
    text += fmt::format(
        "[rank{0}]:[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [Rank {0}] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) "
        "ran for "
        "600081 milliseconds before timing out.\n",
        rank);
  const MeasuredRun run = read(text);
  ASSERT_EQ(run.troubles.size(), 1u);
  EXPECT_EQ(run.troubles[0].finding,
            "Ranks 0, 1, 3 waited too long for a collective (line 2, ALLREDUCE, limit 600 s).");
  EXPECT_TRUE(says(run.troubles[0].change, "look first at rank 2")) << run.troubles[0].change;
}

TEST_F(RunLogTest, SaysWhatRanksThatHangDoNotShare) {
  const auto waits = [](int rank, int number, int sent) {
    return fmt::format(
        "[rank{0}]:[E ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum={1}, OpType=ALLTOALL_BASE, NumelIn={2}, NumelOut=123400, Timeout(ms)=600000) ran "
        "for "
        "600029 milliseconds before timing out.\n",
        rank, number, sent);
  };
  const Trouble splits = read(step(1, 2.0) + waits(1, 216, 1379328) + waits(3, 216, 1572864)).troubles.at(0);
  EXPECT_TRUE(says(splits.finding, "Rank 1 sends 1,379,328 elements, rank 3 sends 1,572,864."))
      << splits.finding;
  EXPECT_TRUE(says(splits.change, "splits of an all-to-all")) << splits.change;
  const Trouble behind = read(step(1, 2.0) + waits(1, 217, 64) + waits(3, 216, 64)).troubles.at(0);
  EXPECT_TRUE(says(behind.finding, "Rank 3 is at number 216 of its group, rank 1 at 217.")) << behind.finding;
  EXPECT_TRUE(says(behind.change, "look first at rank 3, which is behind")) << behind.change;
  EXPECT_FALSE(says(behind.finding, "elements"));
}

TEST_F(RunLogTest, ALogOfNothingIsRefused) {
  EXPECT_TRUE(says(refused("hello\nworld\n"), "no step times"));
  EXPECT_TRUE(says(refused(""), "no step times"));
}

TEST_F(RunLogTest, StepsThatGrowAreACause) {
  plan_.prediction.step_time_s = 10.0;
  std::string text;
  for (int64_t n = 1; n <= 100; ++n) text += step(n, 10.0 + double(n));
  const Diagnosis d = diagnose(plan_, read(text));
  ASSERT_TRUE(d.drift);
  EXPECT_NEAR(d.drift->slope_s, 1.0, 1e-6);
  ASSERT_FALSE(d.causes.empty());
  EXPECT_EQ(d.causes.front().name, "steps that grow");
  EXPECT_NEAR(d.causes.front().seconds, d.measured_s - d.drift->before_s, 1e-9);
  EXPECT_LT(std::abs(d.unexplained_s), 0.5 * d.measured_s);
}

TEST_F(RunLogTest, TimersSayWhichPartOfTheStepIsSlow) {
  std::string text;
  for (int64_t n = 1; n <= 4; ++n) {
    text +=
        " samples/sec: 2.0 | iteration 1/ 9 | elapsed time per iteration (ms): 4000 |\n"
        "time (ms) | forward: 700 | backward: 2100 | optimizer: 1200 | batch generator: 1\n";
  }
  const MeasuredRun run = read(text);
  EXPECT_DOUBLE_EQ(run.part(frameworks::StepPart::optimizer), 1.2);
  const Diagnosis d = diagnose(plan_, run);
  ASSERT_EQ(d.causes.size(), 2u);
  EXPECT_EQ(d.causes[0].name, "forward and backward");
  EXPECT_EQ(d.causes[1].name, "optimizer step, and what else follows the backward");
  EXPECT_NEAR(d.causes[0].seconds + d.causes[1].seconds + d.predicted_s, 4.0, 0.01);
  EXPECT_LT(std::abs(d.unexplained_s), 0.01);
}

// What ranks that share cores lose is in the measured durations already. A collective that costs more is then
// that much of the step, and no time is left over.
TEST_F(RunLogTest, CollectivesOfRanksThatShareCoresCostWhatWasMeasured) {
  test::WantedPlan wanted{test::little_gpt(), {8, 16}};
  wanted.tensor = 2;
  Plan plan = test::make_plan(wanted);
  plan.rate_by_active_ranks = {1.0, 0.5};
  const StepProgram program = program_of(plan);
  const std::vector<double> alone = durations_of(plan, program);
  MeasuredRun run;
  double compute_s = 0.0, others_s = 0.0;
  for (InstructionId id = 0; id < program.size(); ++id) {
    const Instruction& i = program.instructions[size_t(id)];
    (i.is_compute() ? compute_s : others_s) += alone[size_t(id)];
  }
  // Both ranks compute at half their speed, and then wait as long again for each other.
  const double tensor_s = 2.0 * compute_s;
  for (const InstructionDuration& d : plan.durations) {
    const bool computes = d.kind == InstructionKind::forward || d.kind == InstructionKind::backward ||
                          d.kind == InstructionKind::optimizer_step;
    run.instructions.push_back({d.kind, d.stage, d.seconds * (computes ? 4.0 : 1.0)});
  }
  for (int64_t rank = 0; rank < 2; ++rank) {
    reports::RankRecord& r = run.ranks.emplace_back();
    r.rank = rank;
    r.compute_s = 2.0 * compute_s;
    r.tensor_s = tensor_s;
  }
  run.step_time_s = 4.0 * compute_s + others_s;
  plan.prediction.step_time_s = 2.0 * compute_s + others_s;
  const Diagnosis d = diagnose(plan, run);
  EXPECT_NEAR(d.unexplained_s, 0.0, 1e-9);
  ASSERT_EQ(d.causes.size(), 1u);
  EXPECT_EQ(d.causes[0].name, "tensor-parallel collectives");
  EXPECT_NEAR(d.causes[0].seconds, tensor_s, 1e-9);
}

TEST_F(RunLogTest, TheShareOfComputeIsThatOfThePlan) {
  plan_.cost.source = "kernels";
  plan_.prediction.step_time_s = 1.0;
  plan_.prediction.bubble_share = 0.15;  // transfers and gradients are waited for in it
  plan_.prediction.exposed = {{CommunicationKind::tensor, 0.01},
                              {CommunicationKind::transfer, 0.02},
                              {CommunicationKind::gradients, 0.03}};
  std::string all;
  for (const std::string& line : next_measurements(plan_, read(step(1, 2.0)))) all += line + "\n";
  EXPECT_TRUE(says(all, "84.0% of the predicted step")) << all;
}

TEST_F(RunLogTest, SaysWhichMeasurementWouldTell) {
  plan_.cost.source = "kernels";
  plan_.prediction.step_time_s = 1.0;
  plan_.prediction.exposed = {{CommunicationKind::transfer, 0.01}, {CommunicationKind::gradients, 0.2}};
  const MeasuredRun run = read(step(1, 2.0));
  const std::vector<std::string> next = next_measurements(plan_, run);
  ASSERT_EQ(next.size(), 3u);
  EXPECT_TRUE(says(next[0], "--timing-log-level 2")) << next[0];
  EXPECT_TRUE(says(next[1], "mpt-profile --model") && says(next[1], "--precision fp32")) << next[1];
  EXPECT_TRUE(says(next[2], "all_reduce_perf") && says(next[2], "on 2 GPUs") &&
              says(next[2], "gradients traffic"))
      << next[2];
  for (const int64_t zero : {1, 2, 3}) {
    plan_.layout.zero = zero;
    for (const bool whole : {false, true}) {
      plan_.layout.execution.edit().traffic.all_reduces_gradients = whole;
      const char* const program = whole && zero < 3 ? "all_reduce_perf" : "reduce_scatter_perf";
      EXPECT_TRUE(says(next_measurements(plan_, run)[2], program)) << zero << " " << whole;
    }
  }
  plan_.layout.shard = 2;  // a rank has half of the gradients, and of ZeRO 3 each layer is reduced alone
  for (StageFootprint& f : plan_.footprints) f.gradient_bytes = 64 << 20;
  plan_.layout.layers_per_stage.assign(plan_.layout.layers_per_stage.size(), 4);
  for (const auto& [zero, size] : {std::pair{1, "-b 64M"}, {2, "-b 128M"}, {3, "-b 32M"}}) {
    plan_.layout.zero = zero;
    EXPECT_TRUE(says(next_measurements(plan_, run)[2], size)) << next_measurements(plan_, run)[2];
  }
  plan_.cost.source = "profile";
  plan_.prediction.exposed.clear();
  EXPECT_EQ(next_measurements(plan_, run).size(), 1u);
}

}  // namespace
}  // namespace mpt::planner
