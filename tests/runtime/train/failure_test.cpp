// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "runtime/execute/executor.h"
#include "runtime/execute/thread_lanes.h"
#include "runtime/train/trainer.h"
#include "tests/support/make_dataset.h"
#include "tests/support/make_plan.h"

namespace mpt::runtime {
namespace {

// A handler that fails in one instruction, on a program with several streams.
class Failing final : public InstructionHandler {
 public:
  explicit Failing(InstructionId at) : at_(at) {}
  void run(InstructionId id) override {
    if (id == at_) throw std::runtime_error("planted");
    ++done;
  }
  std::atomic<int> done{0};

 private:
  InstructionId at_;
};

TEST(Failure, OfAnInstructionIsNamedAndEndsTheStep) {
  const Plan plan = test::make_plan({test::little_gpt()});
  const StepProgram program = program_of(plan);
  for (const InstructionId at : {0, 3, program.size() - 1}) {
    std::string where;
    Failing handler(at);
    const auto lanes =
        make_thread_lanes(program, 0, [&](const std::string& name, const std::string&) { where = name; });
    Executor executor(program, 0, *lanes, handler);
    EXPECT_THROW(executor.run_step(), std::runtime_error);
    EXPECT_EQ(where, instruction_name(program, at));
    EXPECT_LT(handler.done, program.size());
  }
}

TEST(Failure, OfOneRankStopsAllWithOneMessage) {
  // A learning rate that overflows: the loss is not finite after a few steps.
  test::WantedPlan request{test::little_gpt()};
  request.pipeline = request.tensor = 2;
  const Plan plan = test::make_plan(request);
  const std::string file = testing::TempDir() + "/failure_corpus.txt";
  write_file_atomically(file, std::string(4000, 'x') + "yz");
  TrainOptions options;
  options.learning_rate = options.minimum_learning_rate = 1e30;
  options.warmup_steps = 0;
  options.clip = 0;
  options.steps = 50;
  const Dataset corpus = test::make_dataset(file, plan, 1);
  const std::atomic<bool> stop{false};
  try {
    train(plan, options, {&corpus}, nullptr, stop);
    FAIL() << "the run went on";
  } catch (const RunError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("rank 0, step "), std::string::npos) << text;
    EXPECT_NE(text.find("the loss is"), std::string::npos) << text;
  }
}

TEST(Failure, StopEndsBetweenSteps) {
  const Plan plan = test::make_plan({test::little_gpt()});
  const std::string file = testing::TempDir() + "/stop_corpus.txt";
  write_file_atomically(file, std::string(4000, 'x'));
  const Dataset corpus = test::make_dataset(file, plan, 1);
  std::atomic<bool> stop{false};
  const auto result = train(
      plan, {}, {&corpus}, [&](const reports::StepRecord& r) { stop = r.step == 3; }, stop);
  EXPECT_EQ(result.steps.size(), 3u);
}

}  // namespace
}  // namespace mpt::runtime
