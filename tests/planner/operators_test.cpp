// SPDX-License-Identifier: Apache-2.0

// What is inside an instruction adds up to its price.

#include "planner/explain/operators.h"

#include <gtest/gtest.h>

#include "tests/planner/priced_layouts.h"
#include "tests/support/golden.h"

namespace mpt::planner {
namespace {

using test::layout_of;
using test::Priced;
using test::priced_layouts;

TEST(Operators, AddUpToTheStagesPrice) {
  for (const Priced& p : priced_layouts()) {
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
  for (const Priced& p : priced_layouts()) {
    for (const PieceTimes& piece : operator_times(p.problem, p.layout)) {
      for (const OperatorTime& op : piece.operators) {
        for (const auto* costs : {&op.forward, &op.backward, &op.split_backward}) {
          for (const CollectiveCost& c : costs->costs) {
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

TEST(Operators, AsPrinted) {
  Priced p("llama3-8b", "dgx-h100:1", layout_of(4, 1, Recompute::selective));
  p.source = make_roofline_cost(p.problem.cluster);
  p.problem.cost = p.source.get();
  mpt::test::expect_golden("planner/operators.txt", describe_operators(p.problem, p.layout));
}

}  // namespace
}  // namespace mpt::planner
