// SPDX-License-Identifier: Apache-2.0

// The answers of a search beside the fastest layout, against brute force: the simplest of equals, more
// memory, other frameworks, and a search that is stopped.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <tuple>

#include "core/ties.h"
#include "frameworks/framework.h"
#include "planner/answer/recommend.h"
#include "planner/api.h"
#include "planner/search/search.h"
#include "tests/planner/priced_layouts.h"
#include "tests/support/golden.h"
#include "tests/support/random_problem.h"

namespace mpt::planner {
namespace {

using test::dispatch_of;
using test::RandomProblem;

struct Tried {
  double step_time_s;
  int64_t peak_bytes;
  Layout layout;
};

constexpr double kShare = 0.05;  // random problems are small: there are few equals within less
constexpr size_t kFastest = 4;

// The layouts of the space that fit, fastest first.
std::vector<Tried> all_that_fit(const SearchProblem& problem) {
  std::vector<Tried> all;
  for (const Layout& layout : enumerate_layouts(problem)) {
    const Evaluation e = evaluate(problem, estimate(problem, layout));
    if (!e.rejection) all.push_back({e.step_time_s, e.peak_bytes, layout});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Tried& a, const Tried& b) { return a.step_time_s < b.step_time_s; });
  return all;
}

int64_t degrees_above_one(const Layout& l) {
  const int64_t degrees[] = {l.tensor, l.context, l.pipeline, l.data, l.expert};
  return std::count_if(std::begin(degrees), std::end(degrees), [](int64_t d) { return d > 1; });
}

// Those with so many kinds of parallelism at most: the `fastest`, and all that tie with the first.
std::vector<Tried> kept_of(const std::vector<Tried>& all, int64_t most_kinds, size_t fastest) {
  std::vector<Tried> kept;
  for (const Tried& one : all) {
    if (degrees_above_one(one.layout) <= most_kinds &&
        (kept.size() < fastest || one.step_time_s <= (1.0 + kShare) * kept.front().step_time_s))
      kept.push_back(one);
  }
  return kept;
}

bool is_dominated(const Tried& one, const std::vector<Tried>& all) {
  return std::any_of(all.begin(), all.end(), [&](const Tried& other) {
    return does_more(one.layout, other.layout) && one.step_time_s * (1.0 + kShare) >= other.step_time_s &&
           double(one.peak_bytes) * (1.0 + kEqualMemory) >= double(other.peak_bytes);
  });
}

// What is to be recommended of those that do nothing for nothing: the one with the fewest kinds of
// parallelism among those that tie with the fastest, then the roomiest.
std::optional<Tried> choice_of(const std::vector<Tried>& all) {
  std::optional<Tried> chosen;
  double fastest_s = 0.0;
  for (const Tried& one : all) {
    if (is_dominated(one, all)) continue;
    if (!chosen) fastest_s = one.step_time_s;
    if (one.step_time_s > (1.0 + kShare) * fastest_s) break;
    if (!chosen || std::pair(degrees_above_one(one.layout), one.peak_bytes) <
                       std::pair(degrees_above_one(chosen->layout), chosen->peak_bytes))
      chosen = one;
  }
  return chosen;
}

// Beside brute force: the choice among equals, nothing that recomputes or offloads for nothing, and the same
// choice among the layouts with two kinds of parallelism at most.
TEST(Search, TellsTheSimplestOfEqualsFirst) {
  int slower = 0, simpler = 0, for_nothing = 0, simplest_beside = 0;
  for (uint32_t seed = 4000; seed < 4120; ++seed) {
    RandomProblem r(seed);
    const std::vector<Tried> fitting = all_that_fit(r.problem);
    const std::vector<Tried> all = kept_of(fitting, 5, kFastest);
    const auto chosen = choice_of(all);
    const double fastest_s = all.empty() ? 0.0 : all.front().step_time_s;
    const int64_t kinds = all.empty() ? 0 : degrees_above_one(all.front().layout);
    for_nothing +=
        int(std::any_of(all.begin(), all.end(), [&](const Tried& one) { return is_dominated(one, all); }));
    for (const int threads : {1, 3}) {
      r.problem.threads = threads;
      const SearchResult result =
          search(r.problem, {kFastest, 100000, kShare}, {}, {nullptr, nullptr, 1.0, 2});
      ASSERT_EQ(result.best.empty(), !chosen) << seed;
      if (!chosen) continue;
      const Candidate& first = result.best.front();
      EXPECT_EQ(degrees_above_one(first.estimate.layout), degrees_above_one(chosen->layout)) << seed;
      EXPECT_EQ(first.evaluation.peak_bytes, chosen->peak_bytes) << seed;
      EXPECT_EQ(result.certificate.fastest_s, fastest_s) << seed;
      for (const Candidate& c : result.best)
        EXPECT_FALSE(
            is_dominated({c.evaluation.step_time_s, c.evaluation.peak_bytes, c.estimate.layout}, all))
            << seed << " " << layout_name(c.estimate.layout);
      slower += int(first.evaluation.step_time_s > fastest_s);
      simpler += int(degrees_above_one(first.estimate.layout) < kinds);
      const auto simplest = choice_of(kept_of(fitting, 2, 1));
      const bool is_simple = degrees_above_one(first.estimate.layout) <= 2;
      ASSERT_EQ(result.simplest.has_value(), !is_simple && simplest) << seed;
      if (!result.simplest) continue;
      ++simplest_beside;
      EXPECT_LE(degrees_above_one(result.simplest->estimate.layout), 2) << seed;
      EXPECT_EQ(result.simplest->evaluation.peak_bytes, simplest->peak_bytes) << seed;
      EXPECT_EQ(degrees_above_one(result.simplest->estimate.layout), degrees_above_one(simplest->layout));
    }
  }
  EXPECT_GT(slower, 40);
  EXPECT_GT(simpler, 10);
  EXPECT_GT(for_nothing, 5);
  EXPECT_GT(simplest_beside, 10);
}

// The fastest of the problem with more memory, and of what another framework runs: brute force over each set
// by itself, for each framework in turn.
TEST(Search, AnswersForMoreMemoryAndOtherFrameworks) {
  const auto fastest_s = [](const SearchProblem& problem) {
    double best_s = INFINITY;
    for (const Layout& layout : enumerate_layouts(problem)) {
      if (!problem.is_supported(layout)) continue;
      const Evaluation e = evaluate(problem, estimate(problem, layout));
      if (!e.rejection) best_s = std::min(best_s, e.step_time_s);
    }
    return best_s;
  };
  const auto found_s = [](const std::optional<Candidate>& found) {
    return found ? found->evaluation.step_time_s : INFINITY;
  };
  const int requests = std::getenv("MPT_SOAK") != nullptr ? 300 : 40;
  int roomier_wins = 0, beyond_wins = 0, better_than_listed = 0;
  uint32_t seed = 7000;
  for (const frameworks::Framework& asked : frameworks::known_frameworks()) {
    for (int n = 0; n < requests; ++n, ++seed) {
      RandomProblem r(seed, dispatch_of(seed / 3));
      r.problem.framework = std::make_shared<frameworks::Framework>(asked);
      r.problem.threads = n % 4 == 0 ? 3 : 1;
      SearchProblem roomier = r.problem, beyond = r.problem;
      roomier.memory_limit_bytes =
          int64_t(double(r.problem.memory_limit_bytes) * r.pick({101, 120, 200}) / 100);
      beyond.apart_from = std::exchange(beyond.framework, nullptr);
      for (const frameworks::Framework& f : frameworks::known_frameworks()) {
        if (f.name != asked.name && f.name != frameworks::own_runtime().name) beyond.any_of.push_back(&f);
      }
      const SearchResult result = search(r.problem, 1, {}, {&roomier, &beyond, 1.0});
      const double best_s = fastest_s(r.problem), roomier_s = fastest_s(roomier);
      ASSERT_EQ(result.best.empty(), !std::isfinite(best_s)) << asked.name << " " << seed;
      if (std::isfinite(best_s)) {
        EXPECT_EQ(result.best.front().evaluation.step_time_s, best_s) << asked.name << " " << seed;
      }
      // Recompute is fitted to one limit, so what the reference lists for more memory lacks some layouts of
      // less.
      const double found_roomier_s = std::min(
          best_s, found_s(result.roomier.empty() ? std::nullopt : std::optional(result.roomier.front())));
      // More memory is told of where it gains more than a rounding error.
      EXPECT_LE(found_roomier_s, std::min(best_s, roomier_s) * (1.0 + 1e-9)) << asked.name << " " << seed;
      if (found_roomier_s < std::min(best_s, roomier_s)) {
        const Evaluation again = evaluate(roomier, estimate(roomier, result.roomier.front().estimate.layout));
        EXPECT_FALSE(again.rejection) << asked.name << " " << seed;
        EXPECT_EQ(again.step_time_s, found_roomier_s) << asked.name << " " << seed;
        ++better_than_listed;
      }
      roomier_wins += int(roomier_s < best_s);
      if (result.best.empty()) continue;
      beyond.apart_from = nullptr;
      const double beyond_s = fastest_s(beyond);
      EXPECT_EQ(std::min(best_s, found_s(result.beyond)), std::min(best_s, beyond_s))
          << asked.name << " " << seed;
      beyond_wins += int(beyond_s < best_s);
    }
  }
  EXPECT_GT(roomier_wins, 15);
  EXPECT_LE(better_than_listed, requests / 40);
  EXPECT_GT(beyond_wins, 15);
}

// One search for many limits finds for each what a search of its own finds, or a faster layout that fits.
TEST(Search, AnswersForManyLimitsOfMemory) {
  constexpr std::array kShares{30, 40, 50, 63, 80, 100, 160};
  int gains = 0, none = 0, faster = 0;
  uint32_t seed = 7700;
  for (const frameworks::Framework& asked : frameworks::known_frameworks()) {
    for (int n = 0; n < 24; ++n, ++seed) {
      RandomProblem r(seed, dispatch_of(seed / 3));
      r.problem.framework = std::make_shared<frameworks::Framework>(asked);
      r.problem.threads = n % 4 == 0 ? 3 : 1;
      std::vector<int64_t> limits;
      for (const int share : kShares) limits.push_back(r.problem.memory_limit_bytes * share / 100);
      const auto found = search_limits(r.problem, limits);
      ASSERT_EQ(found.size(), limits.size()) << seed;
      double before_s = INFINITY;
      for (size_t l = 0; l < limits.size(); ++l) {
        SearchProblem alone = r.problem;
        alone.memory_limit_bytes = limits[l];
        const SearchResult own = search(alone, 1);
        none += int(own.best.empty());
        if (!own.best.empty()) before_s = std::min(before_s, own.best.front().evaluation.step_time_s);
        const double found_s = found[l] ? found[l]->evaluation.step_time_s : INFINITY;
        EXPECT_LE(found_s, before_s * (1.0 + 1e-9)) << asked.name << " " << seed << " " << kShares[l];
        faster += int(found_s < before_s);
        if (!found[l]) continue;
        const Evaluation again = evaluate(alone, estimate(alone, found[l]->estimate.layout));
        EXPECT_FALSE(again.rejection) << asked.name << " " << seed << " " << kShares[l];
        EXPECT_EQ(again.step_time_s, found_s);
        gains += int(l > 0 && found[l - 1] && found_s < found[l - 1]->evaluation.step_time_s);
        before_s = std::min(before_s, found_s);
      }
    }
  }
  EXPECT_GT(gains, 50);
  EXPECT_GT(none, 20);
  EXPECT_LE(faster, 3);
}

// With more memory the same layout may have a faster schedule, or an equal one that needs more.
TEST(Search, ManyLimitsKeepTheScheduleThatWasMadeForOneOfThem) {
  for (const auto& [model, cluster, batch, sequence] :
       {std::tuple{"qwen2-7b", "dgx-h100:32", 1024, 1024}, {"falcon-7b", "dgx-h100:2", 24, 2048}}) {
    PlanRequest request;
    request.model.name = model;
    request.cluster.name = cluster;
    request.framework = frameworks::own_runtime().name;
    request.global_batch = batch;
    request.sequence = sequence;
    request.bounds.recomputes = {Recompute::none};
    const auto resolved = resolve(request);
    const SearchProblem& problem = resolved->problem;
    std::vector<int64_t> limits;
    for (double share = 1.0; share > 0.1; share *= 0.85)
      limits.insert(limits.begin(), int64_t(share * double(problem.memory_limit_bytes)));
    const auto found = search_limits(problem, limits);
    ASSERT_EQ(found.size(), limits.size());
    for (size_t l = 0; l < limits.size(); ++l) {
      if (!found[l]) continue;
      EXPECT_LE(found[l]->evaluation.peak_bytes, limits[l]) << model;
      const double before_s = l > 0 && found[l - 1] ? found[l - 1]->evaluation.step_time_s : INFINITY;
      EXPECT_LE(found[l]->evaluation.step_time_s, before_s) << model;
    }
  }
}

// The sets that are searched beside the first change none of its counts.
TEST(Search, CountsTheLayoutsOfFortyRequests) {
  std::string counts;
  int n = 0;
  for (const char* model : {"gpt2-1.5b", "llama3-8b", "llama3-70b", "qwen3-30b-a3b"}) {
    for (const char* cluster : {"dgx-h100:1", "dgx-a100:4", "dgx-h200:8", "gb200-nvl72:1", "l40s-pcie:2"}) {
      for (const char* framework : {"megatron-core", "pytorch"}) {
        PlanRequest request;
        request.model.name = model;
        request.cluster.name = cluster;
        request.framework = framework;
        request.global_batch = 64 << (n++ % 3);
        const auto resolved = resolve(request);
        const SearchCertificate alone = search(resolved->problem, 1).certificate;
        EXPECT_TRUE(alone.optimal);
        const PlanOrReason answer = plan_or_reason(resolved->problem, request);
        if (answer.plan) {
          EXPECT_EQ(answer.plan->search.layouts, alone.layouts)
              << model << " " << cluster << " " << framework;
        }
        counts += fmt::format("{} on {} for {}: {}{}\n", model, cluster, framework, alone.layouts,
                              answer.plan ? "" : ", none fits");
      }
    }
  }
  EXPECT_EQ(n, 40);
  test::expect_golden("planner/search_counts.txt", counts);
}

// Stopped after any number of nodes, a search has something, and nothing slower than what people try first.
TEST(Search, IsNeverSlowerThanTheObviousWhereverItStops) {
  PlanRequest request;
  request.model.name = "llama3-8b";
  request.cluster.name = "dgx-h100:1";
  request.global_batch = 64;
  const auto resolved = resolve(request);
  SearchProblem problem = resolved->problem;
  problem.look_every = 1;
  SearchProblem plain = problem;
  plain.bounds.schedules = {"1f1b"};
  plain.bounds.chunks = {1};
  plain.bounds.context = {1};
  plain.bounds.micro_batch = {1};
  plain.bounds.offload = {Switch::off};
  plain.fits_recompute = false;
  const double obvious_s = search(plain, 1).best.front().evaluation.step_time_s;
  const SearchResult whole = search(problem, 1);
  const bool soak = std::getenv("MPT_SOAK") != nullptr;
  int stopped = 0;
  for (int64_t nodes = 0; nodes < 10000; nodes = nodes < 50 || soak ? nodes + 1 : nodes * 5 / 4) {
    int64_t seen = 0;
    const SearchResult result = search(problem, 1, [&](const SearchProgress&) { return seen++ < nodes; });
    ASSERT_FALSE(result.best.empty()) << nodes;
    EXPECT_LE(result.best.front().evaluation.step_time_s, obvious_s) << nodes;
    EXPECT_GE(result.best.front().evaluation.step_time_s, whole.best.front().evaluation.step_time_s) << nodes;
    EXPECT_LE(result.bound_s, whole.best.front().evaluation.step_time_s) << nodes;
    stopped += result.certificate.optimal ? 0 : 1;
  }
  EXPECT_GT(stopped, 50);
}

}  // namespace
}  // namespace mpt::planner
