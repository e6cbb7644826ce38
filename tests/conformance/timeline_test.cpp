// SPDX-License-Identifier: Apache-2.0

// Conformance test 1: the real executor on virtual lanes gives the simulator's timeline, bit for bit; and a
// planted fault is seen.

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <thread>

#include "core/lower.h"
#include "core/schedule_catalog.h"
#include "planner/simulate/simulator.h"
#include "runtime/execute/executor.h"
#include "tests/support/core_plan.h"
#include "tests/support/virtual_lanes.h"

namespace mpt {
namespace {

struct Counting final : runtime::InstructionHandler {
  void run(InstructionId) override { ++count; }
  int count = 0;
};

// Every pipeline rank on a thread of its own; the spans of all joined by instruction id.
Timeline execute(const StepProgram& program, const std::vector<double>& durations_s) {
  test::VirtualMeeting meeting;
  std::vector<Timeline> own(size_t(program.ranks));
  std::vector<std::string> errors(size_t(program.ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < program.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto lanes = test::make_virtual_lanes(program, durations_s, meeting);
        Counting handler;
        runtime::Executor executor(program, rank, *lanes, handler);
        executor.run_step();
        for (InstructionId id = 0; id < program.size(); ++id)
          own[size_t(rank)].spans.push_back(lanes->span(id));
      } catch (const std::exception& error) {
        errors[size_t(rank)] = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  Timeline joined;
  for (InstructionId id = 0; id < program.size(); ++id) {
    joined.spans.push_back(own[size_t(program.lanes(id).front().rank)].spans[size_t(id)]);
    for (const Lane& lane : program.lanes(id))
      EXPECT_EQ(own[size_t(lane.rank)].spans[size_t(id)], joined.spans.back());
  }
  return joined;
}

struct Case {
  std::string name;
  StepProgram program;
  std::vector<double> durations_s;
  bool single_lane;
};

void for_each_case(const std::function<void(const Case&)>& body) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> seconds(0.001, 1.0);
  for (const ScheduleEntry& entry : schedule_catalog()) {
    for (const int ranks : {1, 2, 3, 4, 8}) {
      for (int chunks = entry.min_chunks; chunks <= std::min(3, entry.max_chunks); ++chunks) {
        for (const int micro_batches : {1, 3, 8, 16}) {
          for (const bool single_lane : {false, true}) {
            Layout layout;
            layout.pipeline = ranks;
            layout.chunks = chunks;
            layout.data = 1 + micro_batches % 2;
            auto footprints = test::distinct_footprints(ranks * chunks);
            if (ranks > 1)
              footprints.front().tied_embedding_bytes = footprints.back().tied_embedding_bytes = 64;
            Case c{entry.name,
                   lower(layout, entry.generate(ranks, chunks, micro_batches), footprints),
                   {},
                   single_lane};
            if (single_lane) c.program = test::on_single_lanes(std::move(c.program));
            for (InstructionId id = 0; id < c.program.size(); ++id) c.durations_s.push_back(seconds(random));
            body(c);
          }
        }
      }
    }
  }
}

TEST(TimelineConformance, ExecutorAndSimulatorAgreeToTheBit) {
  int count = 0;
  for_each_case([&](const Case& c) {
    ++count;
    EXPECT_EQ(execute(c.program, c.durations_s), planner::simulate(c.program, c.durations_s))
        << c.name << ", " << c.program.ranks << " ranks, " << c.program.micro_batches << " micro-batches";
  });
  EXPECT_GE(count, 160);
}

// The fault: the waits of compute instructions are lost, so a forward starts before its activation has
// arrived. It must show wherever a lane of its own brings the activation; on one lane per rank the order of
// the lane hides it.
TEST(TimelineConformance, ALostWaitIsSeen) {
  int seen = 0, able = 0;
  for_each_case([&](const Case& c) {
    if (c.single_lane || c.program.ranks == 1) return;
    StepProgram faulty = c.program;
    for (Instruction& i : faulty.instructions) {
      if (i.kind == InstructionKind::forward || i.kind == InstructionKind::backward) i.wait_count = 0;
    }
    ++able;
    seen += execute(faulty, c.durations_s) == planner::simulate(c.program, c.durations_s) ? 0 : 1;
  });
  EXPECT_EQ(seen, able);
  EXPECT_GE(able, 60);
}

}  // namespace
}  // namespace mpt
