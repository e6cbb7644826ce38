// SPDX-License-Identifier: Apache-2.0

// Lanes of threads: order within a stream, waits across streams, streams side by side, failures.

#include "runtime/execute/thread_lanes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace mpt::runtime {
namespace {

// Instructions 0, 1, ... on the given streams of rank 0, without waits of their own.
StepProgram program_on(const std::vector<Stream>& streams) {
  StepProgram program;
  for (const Stream stream : streams) {
    Instruction i;
    i.stage = 0;
    i.micro_batch = int(program.size());
    i.first_lane = int32_t(program.lane_table.size());
    i.lane_count = 1;
    program.lane_table.push_back({0, stream});
    program.instructions.push_back(i);
  }
  program.rank_of_stage = {0};
  return program;
}

struct Failure {
  std::string instruction, what;
};

class ThreadLanes : public testing::Test {
 protected:
  std::unique_ptr<Lanes> make(const StepProgram& program) {
    auto lanes =
        make_thread_lanes(program, 0, [this](const std::string& instruction, const std::string& what) {
          const std::lock_guard lock(mutex_);
          failures_.push_back({instruction, what});
        });
    lanes->begin_step();
    return lanes;
  }
  void note(int value) {
    const std::lock_guard lock(mutex_);
    seen_.push_back(value);
  }

  std::mutex mutex_;
  std::vector<int> seen_;
  std::vector<Failure> failures_;
};

TEST_F(ThreadLanes, AStreamKeepsItsOrder) {
  const StepProgram program = program_on(std::vector<Stream>(200, Stream::compute));
  const auto lanes = make(program);
  std::vector<int> wanted;
  for (int id = 0; id < program.size(); ++id) {
    wanted.push_back(id);
    lanes->launch(id, Stream::compute, {}, [this, id] { note(id); });
  }
  lanes->synchronize();
  EXPECT_EQ(seen_, wanted);
  for (int id = 1; id < program.size(); ++id) EXPECT_LE(lanes->span(id - 1).end_s, lanes->span(id).start_s);
}

// Each waits inside its work for the other to have begun: possible only side by side.
TEST_F(ThreadLanes, StreamsRunSideBySide) {
  const StepProgram program = program_on({Stream::compute, Stream::reduction});
  const auto lanes = make(program);
  std::latch both(2);
  lanes->launch(0, Stream::compute, {}, [&] { both.arrive_and_wait(); });
  lanes->launch(1, Stream::reduction, {}, [&] { both.arrive_and_wait(); });
  lanes->synchronize();
  EXPECT_LT(lanes->span(0).start_s, lanes->span(1).end_s);
  EXPECT_LT(lanes->span(1).start_s, lanes->span(0).end_s);
}

TEST_F(ThreadLanes, AWaitHoldsBackAnotherStream) {
  const StepProgram program = program_on({Stream::compute, Stream::gradient_out});
  for (int repeat = 0; repeat < 100; ++repeat) {
    const auto lanes = make(program);
    std::atomic<bool> first_done{false}, in_order{false};
    const InstructionId waits[] = {0};
    lanes->launch(0, Stream::compute, {}, [&] { first_done = true; });
    lanes->launch(1, Stream::gradient_out, waits, [&] { in_order = first_done.load(); });
    lanes->synchronize();
    EXPECT_TRUE(in_order);
    EXPECT_LE(lanes->span(0).end_s, lanes->span(1).start_s);
  }
}

TEST_F(ThreadLanes, AFailureIsToldAndThrownAndTheRestIsSkipped) {
  const StepProgram program = program_on({Stream::compute, Stream::compute, Stream::reduction});
  const auto lanes = make(program);
  const InstructionId waits[] = {1};
  lanes->launch(0, Stream::compute, {}, [] { throw std::runtime_error("out of luck"); });
  lanes->launch(1, Stream::compute, {}, [this] { note(1); });
  lanes->launch(2, Stream::reduction, waits, [this] { note(2); });
  EXPECT_THROW(lanes->synchronize(), std::exception);
  EXPECT_TRUE(seen_.empty()) << "nothing behind a failure runs";
  ASSERT_FALSE(failures_.empty());
  EXPECT_NE(failures_.front().what.find("out of luck"), std::string::npos);
  EXPECT_NE(failures_.front().instruction.find("stage 0"), std::string::npos);
}

TEST_F(ThreadLanes, LackOfMemoryIsToldInWords) {
  const StepProgram program = program_on({Stream::compute});
  const auto lanes = make(program);
  lanes->launch(0, Stream::compute, {}, [] { throw std::bad_alloc(); });
  EXPECT_THROW(lanes->synchronize(), std::bad_alloc);
  ASSERT_FALSE(failures_.empty());
  EXPECT_TRUE(failures_.front().what.starts_with("out of memory")) << failures_.front().what;
}

// Of a device that was last called when the step began.
class Silent final : public WorkMarks {
 public:
  void begin_step() override { since_s_ = now_s(); }
  void start(int64_t) override {}
  void end(int64_t) override {}
  void await(int64_t) override {}
  void finish() override {}
  double last_call_s() const override { return since_s_; }
  std::pair<double, double> time_s(int64_t) const override { return {}; }

 private:
  double since_s_ = 0.0;
};

TEST_F(ThreadLanes, TellOnceOfADeviceThatDoesNotAnswer) {
  const StepProgram program = program_on({Stream::compute, Stream::activation_out});
  std::latch told(1);
  const auto lanes = make_thread_lanes(
      program, 0,
      [&](const std::string& instruction, const std::string& what) {
        failures_.push_back({instruction, what});
        told.count_down();
      },
      std::make_unique<Silent>(), 0.2);
  lanes->begin_step();
  lanes->launch(0, Stream::activation_out, {}, [] {});
  lanes->launch(1, Stream::compute, {}, [&] {
    told.wait();
    std::this_thread::sleep_for(std::chrono::seconds(1));  // in which it could be told again
  });
  lanes->synchronize();
  ASSERT_EQ(failures_.size(), 1u);
  EXPECT_EQ(failures_.front().instruction, instruction_name(program, 1));
  EXPECT_NE(failures_.front().what.find("has not returned for"), std::string::npos) << failures_.front().what;
}

TEST_F(ThreadLanes, ServeStepAfterStep) {
  const StepProgram program = program_on({Stream::compute, Stream::activation_out});
  const auto lanes = make(program);
  const InstructionId waits[] = {0};
  double last_end_s = 0.0;
  for (int step = 0; step < 20; ++step) {
    lanes->begin_step();
    lanes->launch(0, Stream::compute, {}, [this] { note(0); });
    lanes->launch(1, Stream::activation_out, waits, [this] { note(1); });
    lanes->synchronize();
    EXPECT_GE(lanes->span(0).start_s, last_end_s);
    last_end_s = lanes->span(1).end_s;
  }
  EXPECT_EQ(seen_.size(), 40u);
}

}  // namespace
}  // namespace mpt::runtime
