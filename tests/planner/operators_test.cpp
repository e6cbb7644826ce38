// SPDX-License-Identifier: Apache-2.0

// What is inside an instruction adds up to its price.

#include "planner/explain/operators.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "models/framework.h"
#include "models/zoo.h"
#include "planner/search/evaluate.h"
#include "profiler/hardware/catalog.h"
#include "tests/support/golden.h"

namespace mpt::planner {
namespace {

struct Priced {
  Priced(const std::string& model, const std::string& cluster, Layout of) : layout(std::move(of)) {
    problem.model = models::load_model(model);
    problem.cluster = profiler::load_cluster(cluster, std::nullopt);
    problem.workload = {4 * layout.data * layout.micro_batch, 4096};
    problem.ranks = layout.ranks();
    problem.memory_limit_bytes = problem.cluster.device.memory_bytes;
    problem.precision = layout.precision = Precision::bf16;
    problem.execution = layout.execution = models::load_framework("megatron-core", "test");
    layout.layers_per_stage = even_stages(problem.model.layers, layout.stages());
    source = make_device_cost(problem.cluster, problem.execution);
    problem.cost = source.get();
  }

  Priced(const Priced&) = delete;

  SearchProblem problem;
  Layout layout;
  std::unique_ptr<CostSource> source;
};

Layout layout_of(int64_t tensor, int64_t pipeline, Recompute recompute) {
  Layout l;
  l.tensor = tensor;
  l.pipeline = pipeline;
  l.sequence_parallel = tensor > 1;
  l.recompute = recompute;
  return l;
}

// In place for good: the prices refer to the problem's cluster.
std::deque<Priced> several() {
  std::deque<Priced> priced;
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
    priced.emplace_back("llama3-8b", "dgx-h100:2", layout_of(4, 1, recompute));
  Layout overlapped = layout_of(8, 1, Recompute::selective);
  overlapped.overlap_tensor = true;
  priced.emplace_back("llama3-8b", "dgx-h100:1", overlapped);
  Layout ring = layout_of(2, 1, Recompute::none);
  ring.context = 4;
  priced.emplace_back("llama3-8b", "dgx-h100:1", ring);
  Layout experts = layout_of(2, 1, Recompute::full);
  experts.data = experts.expert = 4;
  experts.expert_tensor = 1;
  priced.emplace_back("deepseek-v2", "dgx-h100:1", experts);
  return priced;
}

TEST(Operators, AddUpToTheStagesPrice) {
  for (const Priced& p : several()) {
    const Estimate e = estimate(p.problem, p.layout);
    double forward_s = p.source->dispatch_s(), backward_s = forward_s;
    for (const PieceTimes& piece : operator_times(p.problem, p.layout)) {
      forward_s += double(piece.count) * piece.seconds(InstructionKind::forward);
      backward_s += double(piece.count) * piece.seconds(InstructionKind::backward);
    }
    EXPECT_NEAR(forward_s, e.cost.stages[0].of(InstructionKind::forward), 1e-9) << layout_name(p.layout);
    EXPECT_NEAR(backward_s, e.cost.stages[0].of(InstructionKind::backward), 1e-9) << layout_name(p.layout);
  }
}

TEST(Operators, EveryCollectiveIsExposedAtMostAsLongAsItTakes) {
  size_t seen = 0, hidden = 0;
  for (const Priced& p : several()) {
    for (const PieceTimes& piece : operator_times(p.problem, p.layout)) {
      for (const OperatorTime& op : piece.operators) {
        for (const auto* costs : {&op.forward_collectives, &op.backward_collectives}) {
          for (const CollectiveCost& c : *costs) {
            EXPECT_GE(c.exposed_s, 0.0) << op.name;
            EXPECT_LE(c.exposed_s, c.seconds * (1 + 1e-12)) << op.name;
            ++seen;
            if (c.exposed_s < 0.9 * c.seconds) ++hidden;
          }
        }
      }
    }
  }
  EXPECT_GT(seen, 40u);
  EXPECT_GT(hidden, 4u);
}

TEST(Operators, SpansLieInsideTheirInstructionAndDoNotOverlapOnATrack) {
  std::deque<Priced> priced = several();
  priced.emplace_back("llama3-8b", "dgx-h100:1", layout_of(2, 4, Recompute::selective));
  Layout some = layout_of(2, 4, Recompute::full);
  some.recomputed_layers = {4, 3, 0, 1};
  priced.emplace_back("llama3-8b", "dgx-h100:1", some);
  Layout split = layout_of(2, 4, Recompute::none);
  split.schedule = "zb-h1";
  priced.emplace_back("llama3-8b", "dgx-h100:1", split);
  for (const Priced& p : priced) {
    const Estimate estimated = estimate(p.problem, p.layout);
    const Evaluation e = evaluate_regardless(p.problem, estimated);
    const auto spans = inner_spans(p.problem, p.layout, e.program, e.timeline);
    std::map<std::pair<InstructionId, int>, double> last_end_s;
    std::map<InstructionId, double> end_s;
    for (const reports::InnerSpan& span : spans) {
      const Span& whole = e.timeline.spans[size_t(span.instruction)];
      double& last_s = last_end_s[{span.instruction, span.track}];
      EXPECT_GE(span.start_s, whole.start_s - 1e-9) << span.name;
      EXPECT_LE(span.end_s, whole.end_s + 1e-9) << span.name;
      EXPECT_GE(span.start_s, last_s - 1e-9) << span.name;
      EXPECT_GE(span.end_s, span.start_s);
      last_s = span.end_s;
      end_s[span.instruction] = std::max(end_s[span.instruction], span.end_s);
    }
    // Every instruction of the micro-batch is filled, but for what launching it takes.
    const auto computes = [](const Instruction& i) { return i.micro_batch == 0 && i.is_compute(); };
    EXPECT_EQ(ptrdiff_t(end_s.size()),
              std::count_if(e.program.instructions.begin(), e.program.instructions.end(), computes));
    for (const auto& [id, end] : end_s) {
      const Span& whole = e.timeline.spans[size_t(id)];
      EXPECT_NEAR(end + p.source->dispatch_s(), whole.end_s, 1e-3 * whole.seconds())
          << instruction_name(e.program, id);
    }
  }
}

TEST(Operators, AsPrinted) {
  Priced p("llama3-8b", "dgx-h100:1", layout_of(4, 1, Recompute::selective));
  p.source = make_roofline_cost(p.problem.cluster);
  p.problem.cost = p.source.get();
  test::expect_golden("planner/operators.txt", describe_operators(p.problem, p.layout));
}

}  // namespace
}  // namespace mpt::planner
