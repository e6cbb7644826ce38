// SPDX-License-Identifier: Apache-2.0
#pragma once

// A step in streams: tasks finer than instructions, which slow each other down where a rank computes and
// communicates at once. The simulator of searches (planner/simulate/simulator.h) prices that inside an
// instruction: this is the oracle of its closed forms.

#include <span>
#include <vector>

#include "core/plan.h"
#include "planner/simulate/simulator.h"

namespace mpt::planner {

/// Streams of a rank: those of Stream, of which `reduction` carries all data-parallel traffic, and behind
/// them tensor-, context- and expert-parallel collectives.
inline constexpr int kTaskStreams = kStreamCount + 3;
int task_stream(CommunicationKind kind);

struct TaskLane {
  int rank = 0;
  int stream = 0;
};

struct StreamTask {
  double seconds = 0.0;  // with nothing beside it
  /// Of a collective: while its rank computes, both go slower, so that together they take this share of the
  /// time they share longer.
  double lost = 0.0;
  InstructionId instruction = 0;
  int32_t first_lane = 0, lane_count = 0;
  int32_t first_wait = 0, wait_count = 0;
};

/// Like a StepProgram: a task waits on earlier ones only, and a stream runs its tasks in list order.
struct StreamProgram {
  int ranks = 1;
  std::vector<StreamTask> tasks;
  std::vector<TaskLane> lane_table;
  std::vector<int32_t> wait_table;

  int32_t add(StreamTask task, std::span<const TaskLane> lanes, std::span<const int32_t> waits);
  std::span<const TaskLane> lanes(size_t task) const {
    return {lane_table.data() + tasks[task].first_lane, size_t(tasks[task].lane_count)};
  }
  std::span<const int32_t> waits(size_t task) const {
    return {wait_table.data() + tasks[task].first_wait, size_t(tasks[task].wait_count)};
  }
};

/// When each task runs. Compute and collectives that a rank runs at once share it: a collective runs at
/// 1 / (1 + lost), compute at 1 / (1 + the sum of those). What lies on several ranks, or on streams of
/// transfers, slows nothing. Tasks on compute streams are slowed by contention as instructions are.
std::vector<Span> simulate(const StreamProgram& program, const Contention& contention);

}  // namespace mpt::planner
