// SPDX-License-Identifier: Apache-2.0

// The search against brute force on random small problems, and the bound against the simulation.

#include "planner/search/search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "base/clock.h"
#include "base/error.h"
#include "base/quantity.h"
#include "core/ties.h"
#include "frameworks/framework.h"
#include "planner/api.h"
#include "planner/explain/explain.h"
#include "planner/explain/nothing_divides.h"
#include "planner/search/inner_bound.h"
#include "planner/search/layout_resolver.h"
#include "planner/search/tiers.h"
#include "tests/planner/bounds_rise.h"
#include "tests/planner/priced_layouts.h"
#include "tests/support/make_plan.h"
#include "tests/support/random_problem.h"

namespace mpt::planner {
namespace {

using test::dispatch_of;
using test::RandomProblem;

TEST(Search, FindsWhatBruteForceFinds) {
  int with_answer = 0, without = 0, pruned = 0;
  for (uint32_t seed = 0; seed < 168; ++seed) {
    RandomProblem r(seed, dispatch_of(seed / 3));  // a model with experts is of every third seed
    double best = INFINITY;
    int64_t fitting = 0;
    const std::vector<Layout> layouts = enumerate_layouts(r.problem);
    for (const Layout& layout : layouts) {
      const Evaluation e = evaluate(r.problem, estimate(r.problem, layout));
      if (e.rejection) continue;
      ++fitting;
      best = std::min(best, e.step_time_s);
    }
    const SearchResult result = search(r.problem, 1);
    const SearchCertificate& c = result.certificate;
    EXPECT_TRUE(c.optimal);
    EXPECT_GE(c.layouts, int64_t(layouts.size())) << seed;
    ASSERT_EQ(result.best.empty(), fitting == 0) << seed;
    pruned += c.over_bound > 0 ? 1 : 0;
    fitting == 0 ? ++without : ++with_answer;
    if (fitting > 0) {
      EXPECT_EQ(result.best.front().evaluation.step_time_s, best) << seed;
    }
  }
  EXPECT_GT(with_answer, 100);
  EXPECT_GT(without, 20);
  EXPECT_GT(pruned, 50) << "a bound that never prunes is not tested";
}

TEST(Search, WithAGapNothingIsFasterByMore) {
  constexpr double kGap = 0.05;
  int64_t simulated = 0, simulated_all = 0, slower = 0, answers = 0;
  for (uint32_t seed = 0; seed < 120; ++seed) {
    RandomProblem r(seed, dispatch_of(seed / 3));
    const SearchResult all = search(r.problem, 5);
    r.problem.gap = kGap;
    const SearchResult near = search(r.problem, 5);
    ASSERT_EQ(near.best.empty(), all.best.empty()) << seed;
    EXPECT_TRUE(near.certificate.optimal) << seed;
    if (all.best.empty()) continue;
    ++answers;
    const double best_s = all.best.front().evaluation.step_time_s;
    const double near_s = near.best.front().evaluation.step_time_s;
    EXPECT_LE(near_s, (1.0 + kGap) * best_s * (1.0 + 1e-9)) << seed;
    EXPECT_LE(near.bound_s, best_s) << seed;
    EXPECT_DOUBLE_EQ(near.certificate.gap, 1.0 - near.bound_s / near_s) << seed;
    EXPECT_LE(near.certificate.gap, kGap) << seed;
    EXPECT_EQ(all.certificate.gap, 0.0) << seed;
    slower += near_s > best_s ? 1 : 0;
    simulated += near.certificate.simulated;
    simulated_all += all.certificate.simulated;
  }
  EXPECT_GT(answers, 60);
  EXPECT_GT(slower, 0) << "else the gap was never used";
  EXPECT_LT(10 * simulated, 7 * simulated_all);
}

TEST(Search, PartsShareATimeLimit) {
  SearchProblem problem;
  EXPECT_EQ(with_time_left(problem, 0.0, now_s() - 5.0).time_limit_s, 0.0) << "no limit";
  EXPECT_NEAR(with_time_left(problem, 60.0, now_s() - 20.0).time_limit_s, 40.0, 5.0);
  EXPECT_GT(with_time_left(problem, 1.0, now_s() - 5.0).time_limit_s, 0.0) << "zero would be none";
  EXPECT_LT(with_time_left(problem, 1.0, now_s() - 5.0).time_limit_s, 1e-3);
  problem.time_limit_s = 3.0;
  EXPECT_EQ(with_time_left(problem, 60.0, now_s()).time_limit_s, 3.0) << "its own is shorter";
}

TEST(Search, NoBoundIsAboveTheSimulatedTime) {
  int64_t layouts = 0, path_says_more = 0, chunks_launch = 0;
  for (uint32_t seed = 1000; seed < 1150; ++seed) {
    RandomProblem r(seed, dispatch_of(seed));
    LayoutResolver resolver(r.problem);
    r.problem.memory_limit_bytes = 64 * kGiB;
    Timeline timeline;
    for (const Layout& layout : enumerate_layouts(r.problem)) {
      const Estimate e = estimate(r.problem, layout);
      const Evaluation simulated = evaluate(r.problem, e);
      EXPECT_LE(e.bound_s, simulated.step_time_s) << layout_name(layout);
      const double best_rate = contention_of(r.problem, layout).best(layout.pipeline).of_one;
      if (!find_schedule(layout.schedule, "test").made_to_measure) {
        SlowPaths& paths = resolver.slow_paths(layout);
        EXPECT_FALSE(paths.take_longer_than(simulated.step_time_s, e.cost, best_rate)) << layout_name(layout);
        path_says_more += paths.take_longer_than(1.001 * e.bound_s, e.cost, best_rate) ? 1 : 0;
        const auto program =
            resolver.programs().program(layout, micro_batches(layout, r.problem.workload),
                                        models::trains_shared_table(r.problem.model, layout));
        step_time_within(*program, e.cost.durations(*program), contention_of(r.problem, layout), INFINITY,
                         timeline);
        paths.add(*program, timeline);
      }
      const UnpricedBounds unpriced(r.problem, layout, resolver.prices().split(layout));
      const bool some = !layout.recomputed_layers.empty();
      const double unpriced_s = unpriced.bound_s(some ? Recompute::none : layout.recompute, layout.chunks);
      EXPECT_LE(unpriced_s, simulated.step_time_s) << layout_name(layout);
      chunks_launch += layout.chunks > 1 && dispatch_of(seed) > 0.0 ? 1 : 0;
      ++layouts;
    }
  }
  EXPECT_GT(double(path_says_more), 0.1 * double(layouts)) << "else it only costs time";
  EXPECT_GT(chunks_launch, 100);
}

TEST(Search, KeepsTheFastestInOrder) {
  RandomProblem r(7);
  r.problem.memory_limit_bytes = 64 * kGiB;
  const SearchResult result = search(r.problem, 5);
  for (size_t i = 1; i < result.best.size(); ++i) {
    EXPECT_LE(result.best[i - 1].evaluation.step_time_s, result.best[i].evaluation.step_time_s);
  }
}

// What the rank lacks that lacks most. Limits of ranks differ by their communicators.
double excess_of(const Rejection& rejection) { return rejection.needed - rejection.available; }

TEST(Search, EveryPeakIsAtLeastItsFloorAndTheLeastNeedIsTold) {
  int nothing_fits = 0;
  for (uint32_t seed = 2000; seed < 2100; ++seed) {
    RandomProblem r(seed);
    std::map<std::string, double> nearest;  // by split, from the exact peaks: bytes beyond a rank's limit
    for (const Layout& layout : enumerate_layouts(r.problem)) {
      const Estimate e = estimate(r.problem, layout);
      const auto rejection = exact_memory_rejection(r.problem, e);
      if (!rejection) continue;
      EXPECT_LE(double(e.floor_bytes - r.problem.memory_limit_bytes), excess_of(*rejection))
          << layout_name(layout);
      std::string split = fmt::format("tp{}", layout.tensor);
      if (layout.context > 1) split += fmt::format(" cp{}", layout.context);
      split += fmt::format(" pp{} dp{}", layout.pipeline, layout.data);
      if (layout.expert > 1) split += fmt::format(" ep{}", layout.expert);
      const auto [at, fresh] = nearest.try_emplace(split, excess_of(*rejection));
      at->second = std::min(at->second, excess_of(*rejection));
    }
    const SearchResult result = search(r.problem, 1000000);  // keeps all: nothing falls to the bound
    const SearchCertificate& c = result.certificate;
    EXPECT_EQ(c.over_bound, 0) << seed;
    EXPECT_EQ(c.over_memory + c.simulated, c.layouts - c.same) << seed;
    EXPECT_EQ(result.over_memory.size() + size_t(result.more_over_memory), nearest.size());
    for (const NearMiss& miss : result.over_memory)
      EXPECT_GE(excess_of(miss.nearest), nearest.at(miss.name)) << seed << " " << miss.name;
    if (!result.best.empty() || nearest.empty()) continue;
    ASSERT_FALSE(result.over_memory.empty()) << seed;
    // Where nothing fits, what is told is the least of all.
    ++nothing_fits;
    double least = INFINITY;
    for (const auto& [name, excess] : nearest) least = std::min(least, excess);
    EXPECT_EQ(excess_of(result.over_memory.front().nearest), least) << seed;
  }
  EXPECT_GT(nothing_fits, 5);
}

// Threads share the space by splits; what they find together is what one finds.
TEST(Search, SeveralThreadsFindWhatOneFinds) {
  int found = 0, nothing = 0;
  for (uint32_t seed = 4000; seed < 4080; ++seed) {
    RandomProblem r(seed);
    const SearchResult one = search(r.problem, 3);
    r.problem.threads = 3;
    const SearchResult three = search(r.problem, 3);
    EXPECT_EQ(three.certificate.layouts, one.certificate.layouts) << seed;
    EXPECT_TRUE(three.certificate.optimal);
    EXPECT_EQ(three.not_dividing, one.not_dividing) << seed;
    ASSERT_EQ(three.best.size(), one.best.size()) << seed;
    for (size_t i = 0; i < one.best.size(); ++i)
      EXPECT_EQ(three.best[i].evaluation.step_time_s, one.best[i].evaluation.step_time_s) << seed;
    ++(one.best.empty() ? nothing : found);
    if (!one.best.empty() || one.over_memory.empty()) continue;
    ASSERT_EQ(three.over_memory.size(), 1u) << seed;
    EXPECT_EQ(excess_of(three.over_memory.front().nearest), excess_of(one.over_memory.front().nearest))
        << seed;
  }
  EXPECT_GT(found, 30);
  EXPECT_GT(nothing, 3);
}

// Each tier prunes somewhere. The counts of the tiers with one reason add up to that count of the
// certificate.
TEST(Search, TheTiersAccountForAllThatIsPruned) {
  std::map<std::string, int64_t> by_tier;
  for (uint32_t seed = 0; seed < 120; ++seed) {
    RandomProblem r(seed);
    r.problem.threads = 1 + int(seed % 2);
    const SearchCertificate c = search(r.problem, 1).certificate;
    std::map<PruneReason, int64_t> by_reason;
    ASSERT_EQ(c.pruned.size(), kTiers) << seed;
    for (const PrunedLayouts& tier : c.pruned) {
      by_reason[tier.reason] += tier.layouts;
      by_tier[tier.tier] += tier.layouts;
    }
    EXPECT_EQ(by_reason[PruneReason::memory], c.over_memory) << seed;
    EXPECT_EQ(by_reason[PruneReason::bound], c.over_bound) << seed;
    EXPECT_EQ(by_reason[PruneReason::duplicate], c.same) << seed;
  }
  // Small problems have no incumbent while the inner nodes are listed, so these two prune nothing.
  by_tier.erase("degrees: work");
  by_tier.erase("sharding: work");
  // Nor does this one, since the frameworks' rules leave these problems few stages of unequal recompute.
  by_tier.erase("fit: first rank");
  for (const auto& [tier, layouts] : by_tier) EXPECT_GT(layouts, 0) << tier;
}

// Above 64 ranks the search starts with incumbents: they prune inner nodes as those are listed.
TEST(Search, AWarmStartPrunesInnerNodesByTheirWork) {
  test::Priced p("llama3-8b", "dgx-h100:16", test::layout_of(1, 1, Recompute::none));
  p.problem.workload = {256, 4096};
  p.problem.ranks = 128;
  const SearchResult result = search(p.problem, 1);
  EXPECT_TRUE(result.certificate.optimal);
  for (const PrunedLayouts& tier : result.certificate.pruned) {
    if (tier.tier == "degrees: work" || tier.tier == "sharding: work") {
      EXPECT_GT(tier.layouts, 0) << tier.tier;
    }
  }
}

// The bound of a child is never below that of its parent.
TEST(Search, BoundsRiseDownTheTree) {
  int64_t shardings = 0, leaves = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblem r(seed);
    r.problem.memory_limit_bytes = 64 * kGiB;
    const test::CountedNodes counted = test::expect_bounds_rise(r.problem);
    shardings += counted.shardings;
    leaves += counted.leaves;
  }
  EXPECT_GT(shardings, 100);
  EXPECT_GT(leaves, 1000);
}

// What prunes a split before it is priced holds for its price, with kernel times that were measured.
TEST(Search, OtherSplitsSayNothingTooHighOfOneThatIsNotPriced) {
  int64_t ways = 0, works = 0;
  for (const char* model : {"llama3-8b", "gpt-oss-20b", "deepseek-v2-lite"}) {
    test::Priced p(model, "dgx-h100:8", test::layout_of(1, 1, Recompute::none));
    p.problem.workload = {512, 4096};
    p.problem.ranks = 64;
    LayoutResolver resolver(p.problem);
    visit_degrees(p.problem, [&](const Layout& degrees, const std::vector<Sharding>&) {
      const PriceCache::Known known = resolver.prices().known(degrees);
      const SplitPrices& prices = resolver.prices().split(degrees).prices();
      EXPECT_LE(known.way_s, prices.least_way_s) << model << " " << layout_name(degrees);
      EXPECT_LE(known.work_s * double(degrees.pipeline), prices.least_work_s.front() * (1.0 + 1e-12))
          << model << " " << layout_name(degrees);
      ways += known.way_s > 0.0 ? 1 : 0;
      works += known.work_s > 0.0 ? 1 : 0;
    });
  }
  EXPECT_GT(ways, 1000);
  EXPECT_GT(works, 1000);
}

// A search shares prices between layouts. They are those of each layout by itself, whichever came first.
TEST(Search, SharedPricesAreThoseOfEachLayout) {
  int64_t compared = 0;
  for (const frameworks::Framework& framework : frameworks::known_frameworks()) {
    for (const auto& drawn : {std::pair{"llama3-8b", Precision::bf16},
                              {"llama3-8b", Precision::fp8},
                              {"qwen3-30b-a3b", Precision::bf16},
                              {"qwen3-30b-a3b", Precision::fp8}}) {
      const char* const model = drawn.first;
      test::Priced p(model, "dgx-h100:2", test::layout_of(1, 1, Recompute::none), framework.name);
      p.problem.framework = std::make_shared<frameworks::Framework>(framework);
      p.problem.precision = drawn.second;
      p.problem.ranks = 16;
      p.problem.workload = {32, 2048};
      LayoutResolver resolver(p.problem);
      int64_t n = 0;
      visit_shardings(p.problem, [&](const Layout& node) {
        for (const Leaf& leaf : leaves_of(p.problem, node)) {
          if (n++ % 101 != 0 || resolver.stages(node, leaf) == nullptr) continue;
          const Layout layout = resolver.layout(node, leaf);
          const StepCost shared = resolver.cost(layout, leaf);
          const Estimate own = estimate(p.problem, layout);
          for (size_t s = 0; s < own.cost.stages.size(); ++s)
            ASSERT_EQ(shared.stages[s].seconds, own.cost.stages[s].seconds)
                << framework.name << " " << model << " " << layout_name(layout);
          EXPECT_EQ(resolver.footprints(layout), own.footprints)
              << framework.name << " " << layout_name(layout);
          ++compared;
        }
      });
    }
  }
  EXPECT_GT(compared, 1000);
}

TEST(Search, FewerRanksThanDevices) {
  RandomProblem r(7);
  r.problem.cluster.devices = 8;
  r.problem.ranks = 2;
  for (const Layout& layout : enumerate_layouts(r.problem)) EXPECT_EQ(layout.ranks(), 2);
}

TEST(Search, ASpaceThatIsEmptySaysWhy) {
  RandomProblem r(7);
  r.problem.cluster.devices = r.problem.ranks = 8;
  const auto why = [&] {
    const SearchResult result = search(r.problem, 1);
    EXPECT_TRUE(result.best.empty());
    try {
      throw UserError(why_nothing_fits(result, r.problem));
    } catch (const UserError& error) {
      return std::string(error.what());
    }
  };
  r.problem.bounds.tensor = {3};
  EXPECT_NE(why().find("8 ranks cannot be split into groups of --tp 3"), std::string::npos) << why();
  r.problem.bounds.tensor = {4};
  r.problem.bounds.pipeline = {4};
  EXPECT_NE(why().find("--tp 4 x --pp 4 needs 16 ranks, there are 8"), std::string::npos) << why();
  EXPECT_NE(why().find("--tp 2, or --pp 2 instead"), std::string::npos) << "what divides: " << why();
  r.problem.bounds.pipeline = {3};
  r.problem.bounds.tensor = {2};
  EXPECT_NE(why().find("--pp 3: 8 ranks cannot be split into groups of --pp 3"), std::string::npos)
      << "--tp 2 is not in the way: " << why();
  r.problem.bounds = {};
  r.problem.bounds.micro_batch = {7};
  EXPECT_NE(why().find("--micro-batch 7: global batch 8 does not divide"), std::string::npos) << why();
  r.problem.bounds = {};
  r.problem.bounds.schedules = {"1f1b"};
  r.problem.bounds.chunks = {3};
  EXPECT_NE(why().find("--chunks 3: "), std::string::npos) << why();
  EXPECT_NE(why().find("no allowed schedule and chunks"), std::string::npos) << why();
}

TEST(Search, BoundsLimitTheSpace) {
  RandomProblem r(7);
  r.problem.cluster.devices = r.problem.ranks = 8;
  r.problem.bounds.tensor = {2};
  r.problem.bounds.schedules = {"gpipe"};
  r.problem.fits_recompute = false;
  r.problem.bounds.recomputes = {Recompute::full};
  r.problem.framework = std::make_shared<frameworks::Framework>(frameworks::own_runtime());
  const std::vector<Layout> layouts = enumerate_layouts(r.problem);
  ASSERT_FALSE(layouts.empty());
  for (const Layout& layout : layouts) {
    EXPECT_EQ(layout.tensor, 2);
    EXPECT_EQ(layout.schedule, "gpipe");
    EXPECT_EQ(layout.recompute, Recompute::full);
  }
}

// A ring hands on no states of linear mixers: beside a ring of attention, ranks exchange their heads, where
// the framework does so.
TEST(Search, ContextRanksExchangeTheHeadsOfLinearMixers) {
  RandomProblem r(7);
  r.problem.model.layers = test::little_hybrid().layers;
  r.problem.workload = {8, 64};
  r.problem.cluster.devices = r.problem.ranks = 4;
  r.problem.bounds = {};
  r.problem.bounds.context = {2};
  frameworks::Framework runs = frameworks::own_runtime();
  for (const bool rings : {false, true}) {
    runs.abilities.combinations.clear();
    const std::string no = "has no rings beside mixers";
    if (!rings)
      runs.abilities.combinations = {
          {{frameworks::Trait::ring, frameworks::Trait::linear_mixers}, {}, {}, {}, {}, no, "line: a test"}};
    r.problem.framework = std::make_shared<frameworks::Framework>(runs);
    for (const ContextMethod method : {ContextMethod::ring, ContextMethod::all_to_all}) {
      r.problem.bounds.context_methods = {method};
      const std::vector<Layout> layouts = enumerate_layouts(r.problem);
      EXPECT_EQ(layouts.empty(), method == ContextMethod::ring && !rings) << enum_name(method);
      for (const Layout& layout : layouts) EXPECT_EQ(layout.context_method, method);
    }
  }
}

TEST(Search, ALimitOfExactlyItsPeakKeepsALayout) {
  int64_t other = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    RandomProblem r(seed);
    const SearchResult free = search(r.problem, 1);
    // A schedule made to measure is another one with less memory.
    if (free.best.empty() || free.best.front().estimate.layout.schedule == "generated") continue;
    const Evaluation& best = free.best.front().evaluation;
    const std::vector<int64_t> limits = limits_of_ranks(r.problem, free.best.front().estimate.layout);
    int64_t excess = -r.problem.memory_limit_bytes;  // of the rank that is nearest to its limit
    for (const RankMemory& m : best.memory) excess = std::max(excess, m.peak_bytes - limits[size_t(m.rank)]);
    r.problem.memory_limit_bytes += excess;
    const SearchResult exact = search(r.problem, 1);
    ASSERT_FALSE(exact.best.empty()) << seed;
    EXPECT_DOUBLE_EQ(exact.best.front().evaluation.step_time_s, best.step_time_s) << seed;
    --r.problem.memory_limit_bytes;
    const SearchResult less = search(r.problem, 1);
    if (less.best.empty()) continue;
    EXPECT_LE(less.best.front().evaluation.peak_bytes, r.problem.memory_limit_bytes) << seed;
    ++other;
  }
  EXPECT_GT(other, 3);
}

TEST(Search, NothingFitsSaysWhatTheSmallestNeeds) {
  RandomProblem r(7);
  r.problem.memory_limit_bytes = 1000;
  const SearchResult result = search(r.problem, 5);
  ASSERT_TRUE(result.best.empty());
  try {
    throw UserError(why_nothing_fits(result, r.problem));
  } catch (const UserError& error) {
    const std::string text = error.what();
    for (const char* part : {"memory: ", " needs at least ", "; there are 1000 B", "the smallest is ",
                             "weights", "activations"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
    }
  }
}

TEST(Search, APlanOfTheResultIsCompleteAndLoads) {
  RandomProblem r(7);
  r.problem.memory_limit_bytes = 64 * kGiB;
  const SearchResult result = search(r.problem, 3);
  const Plan plan = make_plan(result, r.problem);
  EXPECT_EQ(plan_from_text(plan_to_text(plan), "plan.json"), plan);
  EXPECT_FALSE(plan.reasons.empty());
  EXPECT_FALSE(plan.rejected.empty());
  EXPECT_EQ(plan.ranking.front().layout, plan.layout);
}

TEST(Search, BreakdownAddsUpToTheStep) {
  RandomProblem r(11);
  r.problem.memory_limit_bytes = 64 * kGiB;
  for (const Candidate& c : search(r.problem, 5).best) {
    const Breakdown b = breakdown(r.problem, c);
    EXPECT_NEAR(b.compute_s + b.collectives_s + b.idle_s, c.evaluation.step_time_s,
                1e-9 * c.evaluation.step_time_s);
    EXPECT_GE(b.idle_s, -1e-12);
  }
}

// A schedule that was asked for by name orders the stages of a pipeline.
TEST(Search, SchedulesThatWereAskedForNeedAPipeline) {
  PlanRequest r;
  r.model.name = "llama3-8b";
  r.cluster.name = "dgx-h100:1";
  r.global_batch = 64;
  r.framework = "mpt";
  for (const char* schedule : {"gpipe", "zb-v"}) {
    r.bounds.schedules = {schedule};
    const Plan found = plan(r);
    EXPECT_GT(found.layout.pipeline, 1) << schedule;
    EXPECT_EQ(found.layout.schedule, schedule);
  }
  r.bounds.pipeline = {1};
  EXPECT_THROW(plan(r), UserError);
  r.bounds.schedules = {"gpipe", "1f1b"};
  EXPECT_EQ(plan(r).layout.pipeline, 1);
}

}  // namespace
}  // namespace mpt::planner
