// SPDX-License-Identifier: Apache-2.0

// Instructions in turn, on programs of every schedule. Ranks are threads, and a transfer blocks both of its
// ranks until they have met.

#include "runtime/execute/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/lower.h"
#include "core/schedule_catalog.h"
#include "runtime/execute/thread_lanes.h"
#include "tests/support/core_plan.h"

namespace mpt::runtime {
namespace {

// Where the ranks of a transfer meet.
class Meetings {
 public:
  explicit Meetings(const StepProgram& program) : program_(program) {}

  void meet(InstructionId id) {
    std::unique_lock lock(mutex_);
    ++there_[id];
    changed_.notify_all();
    const auto ranks = int(program_.lanes(id).size());
    if (!changed_.wait_for(lock, std::chrono::seconds(20), [&] { return there_[id] % ranks == 0; }))
      throw std::runtime_error("nobody came to " + instruction_name(program_, id));
  }

 private:
  const StepProgram& program_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<InstructionId, int> there_;
};

// Notes when each instruction begins and ends on its rank.
class Noting final : public InstructionHandler {
 public:
  Noting(const StepProgram& program, Meetings& meetings) : program_(program), meetings_(meetings) {}

  void run(InstructionId id) override {
    note(id, true);
    if (program_.lanes(id).size() > 1) meetings_.meet(id);
    note(id, false);
  }

  struct Moment {
    InstructionId id;
    bool begins;
  };
  std::vector<Moment> moments;

 private:
  void note(InstructionId id, bool begins) {
    const std::lock_guard lock(mutex_);
    moments.push_back({id, begins});
  }

  const StepProgram& program_;
  Meetings& meetings_;
  std::mutex mutex_;
};

struct Case {
  std::string schedule;
  int pipeline, chunks;
};

StepProgram program_of(const Case& c) {
  Layout layout;
  layout.pipeline = c.pipeline;
  layout.chunks = c.chunks;
  const Schedule schedule = find_schedule(c.schedule, "test").generate(c.pipeline, c.chunks, 8);
  return lower(layout, schedule, test::distinct_footprints(c.pipeline * c.chunks));
}

// What each rank did in one step.
std::vector<std::vector<Noting::Moment>> moments_of(const StepProgram& program, Handing handing) {
  Meetings meetings(program);
  std::vector<std::vector<Noting::Moment>> all(size_t(program.ranks));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < program.ranks; ++rank) {
    ranks.emplace_back([&, rank] {
      Noting handler(program, meetings);
      const auto lanes = make_thread_lanes(
          program, rank,
          [](const std::string& name, const std::string& what) { ADD_FAILURE() << name << ": " << what; });
      Executor executor(program, rank, *lanes, handler);
      executor.run_step(handing);
      all[size_t(rank)] = handler.moments;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return all;
}

class Turns : public testing::TestWithParam<Case> {};

TEST_P(Turns, FollowTheList) {
  const StepProgram program = program_of(GetParam());
  const auto all = moments_of(program, Handing::in_turn);
  for (int rank = 0; rank < program.ranks; ++rank) {
    size_t next = 0;
    for (InstructionId id = 0; id < program.size(); ++id) {
      if (!program.lane_on(id, rank)) continue;
      for (const bool begins : {true, false}) {
        ASSERT_LT(next, all[size_t(rank)].size());
        const Noting::Moment& moment = all[size_t(rank)][next++];
        EXPECT_TRUE(moment.id == id && moment.begins == begins)
            << "rank " << rank << ": " << instruction_name(program, moment.id);
      }
    }
    EXPECT_EQ(next, all[size_t(rank)].size());
  }
}

// A receive stands in its lane before its data are sent.
TEST_P(Turns, AreNotWaitedForOtherwise) {
  const StepProgram program = program_of(GetParam());
  const auto all = moments_of(program, Handing::at_once);
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const auto& moments) {
    return std::adjacent_find(moments.begin(), moments.end(), [](const auto& one, const auto& next) {
             return one.begins && next.begins;
           }) != moments.end();
  }));
}

INSTANTIATE_TEST_SUITE_P(Schedules, Turns,
                         testing::Values(Case{"1f1b", 2, 1}, Case{"1f1b", 4, 1}, Case{"gpipe", 3, 1},
                                         Case{"interleaved", 4, 2}, Case{"zb-h1", 4, 1}, Case{"zb-v", 3, 2},
                                         Case{"dualpipe-v", 4, 2}, Case{"v-half", 2, 2}),
                         [](const testing::TestParamInfo<Case>& info) {
                           std::string name = info.param.schedule + "_" + std::to_string(info.param.pipeline);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace mpt::runtime
