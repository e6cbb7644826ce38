// SPDX-License-Identifier: Apache-2.0

// A step simulated operator by operator against the same step of whole instructions.

#include "tests/planner/stream_expansion.h"

#include <gtest/gtest.h>

#include "planner/cost/operator_times.h"
#include "tests/planner/priced_layouts.h"

namespace mpt::planner {
namespace {

using test::layout_of;
using test::Priced;
using test::priced_layouts;

// Nothing data-parallel, or what there is of it runs beside nothing.
std::deque<Priced> without_overlap() {
  std::deque<Priced> priced = priced_layouts();
  priced.emplace_back("llama3-8b", "dgx-h100:1", layout_of(2, 4, Recompute::selective));
  Layout some = layout_of(2, 4, Recompute::full);
  some.recomputed_layers = {4, 3, 0, 1};
  priced.emplace_back("llama3-8b", "dgx-h100:1", some);
  for (const char* schedule : {"zb-h1", "zb-v", "dualpipe-v", "interleaved", "gpipe"}) {
    Layout split = layout_of(2, 4, Recompute::none);
    split.schedule = schedule;
    if (split.schedule != "zb-h1" && split.schedule != "gpipe") split.chunks = 2;
    priced.emplace_back("llama3-8b", "dgx-h100:1", split);
  }
  for (const int64_t zero : {0, 1, 2, 3}) {
    Layout sharded = layout_of(2, 2, Recompute::none);
    sharded.data = 4;
    sharded.zero = zero;
    sharded.shard = sharded.data;
    priced.emplace_back("llama3-8b", "dgx-h100:2", sharded);
  }
  return priced;
}

// With the same for each ZeRO stage, early reduction and gathering ahead.
std::deque<Priced> with_overlap() {
  std::deque<Priced> priced;
  for (const int64_t zero : {0, 1, 2, 3}) {
    for (const int64_t pipeline : {1, 2, 4}) {
      Layout sharded = layout_of(2, pipeline, Recompute::none);
      sharded.data = 8 / pipeline;
      sharded.zero = zero;
      sharded.shard = sharded.data;
      sharded.overlap_gradient_reduce = true;
      sharded.overlap_parameter_gather = zero > 0;
      priced.emplace_back("llama3-8b", "dgx-h100:2", sharded);
    }
  }
  // PyTorch's ways: whole weights between micro-batches, and shares of each node summed beside the backward.
  Layout whole = layout_of(2, 2, Recompute::none);
  whole.data = whole.shard = 4;
  whole.zero = 3;
  whole.overlap_gradient_reduce = whole.overlap_parameter_gather = true;
  priced.emplace_back("llama3-8b", "dgx-h100:2", whole, "torchtitan");
  Layout hybrid = layout_of(2, 1, Recompute::none);
  hybrid.data = 8;
  hybrid.shard = 4;
  hybrid.zero = 3;
  hybrid.overlap_gradient_reduce = hybrid.overlap_parameter_gather = true;
  priced.emplace_back("llama3-8b", "dgx-h100:2", hybrid, "fsdp");
  Layout split = layout_of(2, 4, Recompute::none);
  split.schedule = "zb-h1";
  split.data = 4;
  split.zero = 1;
  split.shard = 4;
  split.overlap_gradient_reduce = split.overlap_parameter_gather = true;
  priced.emplace_back("llama3-8b", "dgx-h100:4", split);
  return priced;
}

struct Simulated {
  explicit Simulated(const Priced& p)
      : name(layout_name(p.layout)),
        whole(evaluate_regardless(p.problem, estimate(p.problem, p.layout))),
        step(simulate_streams(p.problem, p.layout, whole.program)) {}
  std::string name;
  Evaluation whole;
  StreamStep step;
};

TEST(Streams, AStepIsAsLongAsItsInstructionsWhereDataParallelTrafficHasNothingBeside) {
  for (const Priced& p : without_overlap()) {
    const Simulated s(p);
    for (size_t id = 0; id < s.whole.timeline.spans.size(); ++id) {
      const Span &fine = s.step.timeline.spans[id], &whole = s.whole.timeline.spans[id];
      EXPECT_NEAR(fine.start_s, whole.start_s, 1e-9 * s.whole.step_time_s)
          << s.name << " " << instruction_name(s.whole.program, InstructionId(id));
      EXPECT_NEAR(fine.end_s, whole.end_s, 1e-9 * s.whole.step_time_s)
          << s.name << " " << instruction_name(s.whole.program, InstructionId(id));
    }
  }
}

// Operators know what whole instructions do not: that the last backward of every stage is slower for the
// reduction beside it, so that the stage below begins its own later; and that pieces differ in what they
// hide.
TEST(Streams, WhatDataParallelTrafficHidesIsNearTheClosedForm) {
  for (const Priced& p : with_overlap()) {
    const Simulated s(p);
    const double lost = p.source->overlap_share(data_group(p.layout));
    const Estimate e = estimate(p.problem, p.layout);
    double slower_s = 0.0;
    for (size_t stage = 1; stage < e.cost.stages.size() && p.layout.reduces_in_backward(); ++stage)
      slower_s += lost * e.cost.stages[stage].of(InstructionKind::backward);
    const double fine_s = step_time_s(s.step.timeline), whole_s = s.whole.step_time_s;
    EXPECT_GE(fine_s, 0.975 * whole_s) << s.name;
    // Beside weight gradients, sums over tensor ranks and data-parallel traffic take compute from each other;
    // the closed form has each with the whole of it.
    const double more = p.layout.execution->traffic.sums_beside_weight_gradient ? 1.006 : 1.002;
    EXPECT_LE(fine_s, more * whole_s + slower_s) << s.name;
  }
}

TEST(Streams, AllTrafficOfAStepIsThere) {
  for (const Priced& p : with_overlap()) {
    const Simulated s(p);
    const SplitModel split(p.problem, p.layout);
    const DeviceCosts devices = devices_of(p.problem, split, p.layout);
    const StageKinds kinds = stage_kinds(devices, p.layout, s.whole.program.rank_of_stage);
    StepPricer pricer(devices, split.pieces, p.problem.model, p.layout);
    double expected = 0.0, found = 0.0;
    for (const uint16_t kind : kinds.kind_of_stage) {
      const StateCost state = pricer.state_cost(0, kinds.kinds[kind]);
      const bool split_backward = p.layout.schedule == "zb-h1";
      EXPECT_FALSE(split_backward && p.layout.zero > 1);
      const auto& [there, back, scatter] = state.traffic;
      expected += double(s.whole.program.micro_batches) * (there + back + scatter) +
                  (p.layout.reduces_in_backward() ? state.reduction_s : 0.0) + state.gather_s;
    }
    for (size_t t = 0; t < s.step.program.tasks.size(); ++t) {
      const StreamTask& task = s.step.program.tasks[t];
      const InstructionKind kind = s.whole.program.instructions[size_t(task.instruction)].kind;
      if (s.step.program.lanes(t)[0].stream == int(Stream::reduction) &&
          kind <= InstructionKind::weight_gradient)
        found += task.seconds;
    }
    EXPECT_GT(expected, 0.0) << s.name;
    EXPECT_NEAR(found, expected, 1e-9 * expected) << s.name;
  }
}

}  // namespace
}  // namespace mpt::planner
