// SPDX-License-Identifier: Apache-2.0
#pragma once

// Bounds of the search tree against those of its leaves.

#include <gtest/gtest.h>

#include "planner/search/evaluate.h"
#include "planner/search/inner_bound.h"
#include "planner/search/leaf_bounds.h"
#include "tests/support/random_problem.h"

namespace mpt::test {

struct CountedNodes {
  int64_t shardings = 0, leaves = 0;
};

// Expects that no bound is above that of a node or leaf below it, and counts what it compared. The problem
// needs memory enough: what does not fit has no time.
inline CountedNodes expect_bounds_rise(const planner::SearchProblem& problem) {
  using namespace planner;
  CountedNodes counted;
  LayoutResolver resolver(problem);
  visit_degrees(problem, [&](const Layout& degrees, const std::vector<Sharding>& shardings) {
    const SplitModel& split = resolver.prices().split(degrees);
    const InnerBound above = degrees_bound(problem, degrees, split);
    const UnpricedBounds unpriced(problem, degrees, split);
    const LeafList list = leaf_list_of(problem, degrees);
    const DegreesBounds all_leaves(problem, resolver, degrees, list, 1, [](const Leaf&) { return false; });
    for (const Sharding& sharding : shardings) {
      const Layout node = with_sharding(degrees, sharding);
      const InnerBound bound = sharding_bound(problem, node, resolver.prices().split(node));
      EXPECT_LE(above.bound_s, bound.bound_s * (1.0 + 1e-12)) << layout_name(node);
      EXPECT_LE(above.floor_bytes, bound.floor_bytes) << layout_name(node);
      ++counted.shardings;
      for (const Leaf& leaf : leaves_of(problem, node)) {
        const Estimate e = estimate(problem, resolver.layout(node, leaf));
        const double most_s = e.bound_s * (1.0 + 1e-12);
        EXPECT_LE(bound.bound_s, most_s) << layout_name(e.layout);
        EXPECT_LE(all_leaves.least_s() + bound.step_end_s, most_s) << layout_name(e.layout);
        EXPECT_LE(unpriced.bound_s(least_recompute(leaf.recompute), leaf.chunks), most_s)
            << layout_name(e.layout);
        ++counted.leaves;
      }
    }
  });
  return counted;
}

}  // namespace mpt::test
