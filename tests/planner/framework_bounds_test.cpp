// SPDX-License-Identifier: Apache-2.0

// The search's bounds are supports(): with a framework it enumerates the layouts that the framework runs, all
// of them and no others.

#include "planner/request/resolve_parts.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "frameworks/framework.h"
#include "frameworks/supports/supports.h"
#include "planner/search/layout_resolver.h"
#include "tests/support/random_problem.h"

namespace mpt::planner {
namespace {

using frameworks::Framework;
using test::RandomProblem;

std::optional<Rejection> rejection(const Framework& framework, const SearchProblem& p, const Layout& layout) {
  return frameworks::supports(framework, p.model, layout, p.workload);
}

SearchProblem bounded(const SearchProblem& problem, const Framework& framework) {
  SearchProblem p = problem;
  p.framework = std::make_shared<const Framework>(framework);
  return p;
}

// Those that every framework has; check_framework() refuses others before a search.
constexpr Overlaps kUsualOverlaps{true, true, false, true, false};

TEST(FrameworkBounds, TheSearchEnumeratesWhatTheFrameworkRuns) {
  int64_t run = 0, refused = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    RandomProblem r(seed);
    r.problem.precision = Precision::bf16;
    r.problem.overlaps = kUsualOverlaps;
    r.problem.bounds.schedules.clear();
    r.problem.framework.reset();
    r.problem.fits_recompute = false;
    const std::vector<Layout> all = enumerate_layouts(r.problem);
    for (const Framework& framework : frameworks::known_frameworks()) {
      if (frameworks::supports_model(framework, r.problem.model, r.problem.precision) ||
          frameworks::supports_training(framework, r.problem.training))
        continue;
      std::vector<Layout> expected;
      for (const Layout& layout : all) {
        if (!rejection(framework, r.problem, layout)) expected.push_back(layout);
      }
      const std::vector<Layout> found = enumerate_layouts(bounded(r.problem, framework));
      EXPECT_EQ(found, expected) << seed << " " << framework.name << ": " << found.size() << " and "
                                 << expected.size();
      run += int64_t(expected.size());
      refused += int64_t(all.size() - expected.size());
    }
  }
  EXPECT_GT(run, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(FrameworkBounds, FittedRecomputeKeepsToTheRuleOfTheFramework) {
  int64_t partial = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    RandomProblem r(seed);
    r.problem.precision = Precision::bf16;
    r.problem.overlaps = kUsualOverlaps;
    for (const Framework& framework : frameworks::known_frameworks()) {
      if (frameworks::supports_model(framework, r.problem.model, r.problem.precision) ||
          frameworks::supports_training(framework, r.problem.training))
        continue;
      for (const Layout& layout : enumerate_layouts(bounded(r.problem, framework))) {
        const auto why = rejection(framework, r.problem, layout);
        EXPECT_FALSE(why) << seed << " " << framework.name << " " << layout_name(layout) << ": "
                          << why->reason;
        if (layout.recomputed_layers.empty()) continue;
        ++partial;
      }
    }
  }
  EXPECT_GT(partial, 100);
}

// No lower level of the framework's rule fits.
TEST(FrameworkBounds, FittedRecomputeIsTheLowestLevelThatFits) {
  int64_t fitted = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    RandomProblem r(seed);
    if (!r.problem.framework) continue;
    const frameworks::PartialRecompute rule = r.problem.framework->abilities.partial_recompute;
    if (rule != frameworks::PartialRecompute::same_count && rule != frameworks::PartialRecompute::every_nth)
      continue;
    for (Layout layout : enumerate_layouts(r.problem)) {
      // A schedule made to measure takes the memory that there is.
      if (layout.recomputed_layers.empty() || layout.schedule == "generated") continue;
      const std::vector<int64_t> chosen = layout.recomputed_layers;
      const int64_t most = *std::max_element(layout.layers_per_stage.begin(), layout.layers_per_stage.end());
      for (int64_t level = 0; level <= most; ++level) {
        for (size_t s = 0; s < chosen.size(); ++s) {
          layout.recomputed_layers[s] =
              frameworks::recomputed_at_level(rule, level, most, layout.layers_per_stage[s]);
        }
        const bool fits = !evaluate_regardless(r.problem, estimate(r.problem, layout)).rejection;
        EXPECT_EQ(fits, layout.recomputed_layers == chosen)
            << seed << " level " << level << " of " << layout_name(layout);
        if (fits || layout.recomputed_layers == chosen) break;
      }
      if (++fitted >= 300) return;
    }
  }
  EXPECT_GT(fitted, 50);
}

TEST(FrameworkBounds, RefuseAModelThatTheFrameworkLacks) {
  RandomProblem r(2);
  r.problem.framework = std::make_shared<const Framework>(frameworks::own_runtime());
  r.problem.overlaps.exchange = false;
  r.problem.model.next_token_layers = 0;
  const LayerList layers = r.problem.model.layers;
  r.problem.model.layers.change([](LayerKind& k) { k.attention->chunk = 8; });
  EXPECT_THROW(check_framework(r.problem, "--overlap"), UserError);
  r.problem.model.layers = layers;
  r.problem.precision = Precision::nvfp4;
  EXPECT_THROW(check_framework(r.problem, "--overlap"), UserError);
  r.problem.precision = Precision::bf16;
  EXPECT_NO_THROW(check_framework(r.problem, "--overlap"));
  r.problem.overlaps.exchange = true;
  EXPECT_THROW(check_framework(r.problem, "--overlap"), UserError);
}

}  // namespace
}  // namespace mpt::planner
