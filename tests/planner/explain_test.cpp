// SPDX-License-Identifier: Apache-2.0

// What mpt-plan prints, whole, for clusters of the catalog.

#include "planner/api.h"
#include "planner/explain/details.h"
#include "planner/explain/explain.h"

#include <gtest/gtest.h>

#include <set>

#include "models/zoo.h"
#include "planner/memory/memory_model.h"
#include "profiler/hardware/catalog.h"
#include "tests/support/golden.h"

namespace mpt::planner {
namespace {

struct Planned {
  Planned(const std::string& model, const std::string& cluster, int64_t global_batch) {
    problem.model = models::load_model(model);
    problem.cluster = profiler::load_cluster(cluster, std::nullopt);
    problem.workload = {global_batch, std::min<int64_t>(problem.model.max_positions, 4096)};
    problem.ranks = problem.cluster.devices;
    problem.memory_limit_bytes =
        problem.cluster.device.memory_bytes - framework_bytes(problem.cluster.device);
    problem.precision = Precision::bf16;
    source = make_roofline_cost(problem.cluster);
    problem.cost = source.get();
    result = search(problem, 5);
    plan = make_plan(result, problem);
    plan.search.seconds = 0.05;
  }

  SearchProblem problem;
  std::unique_ptr<CostSource> source;
  SearchResult result;
  Plan plan;
};

TEST(Explain, WhatIsPrintedWhereEverythingFits) {
  test::expect_golden("planner/gpt2-1.5b_dgx-h100.txt",
                      planner::explain(Planned("gpt2-1.5b", "dgx-h100:1", 64).plan));
}

TEST(Explain, WhatIsPrintedWhereMemoryDecides) {
  test::expect_golden("planner/llama3-70b_dgx-h100x8.txt",
                      planner::explain(Planned("llama3-70b", "dgx-h100:8", 128).plan));
}

TEST(Explain, ThePredictionOfAPlanIsOneLine) {
  const Planned p("gpt2-124m", "dgx-a100:1", 16);
  const std::string line = describe_prediction(p.plan);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  for (const char* part : {"per step", "idle", "tokens/s", "peak memory"})
    EXPECT_NE(line.find(part), std::string::npos) << line;
}

TEST(Explain, TheRunnerUpsDifferencesAddUp) {
  const Planned p("llama3-8b", "dgx-h100:1", 64);
  ASSERT_GE(p.result.best.size(), 2u);
  const Breakdown a = breakdown(p.problem, p.result.best[0]), b = breakdown(p.problem, p.result.best[1]);
  const double loss = p.result.best[1].evaluation.step_time_s - p.result.best[0].evaluation.step_time_s;
  EXPECT_NEAR((b.compute_s - a.compute_s) + (b.collectives_s - a.collectives_s) + (b.idle_s - a.idle_s), loss,
              1e-9);
  EXPECT_LE(a.step_end_s, a.idle_s + 1e-12);
  EXPECT_NEAR(a.inside.total(), a.collectives_s, 1e-12);
}

TEST(Explain, ExposedCommunicationIsToldForEveryKindThatTheLayoutHas) {
  const Planned p("mixtral-8x7b", "dgx-h100:4", 256);
  std::set<CommunicationKind> told;
  for (const auto& [kind, seconds] : p.plan.prediction.exposed) {
    EXPECT_GE(seconds, 0.0);
    EXPECT_LT(seconds, p.plan.prediction.step_time_s);
    told.insert(kind);
  }
  const Layout& l = p.plan.layout;
  EXPECT_EQ(told.contains(CommunicationKind::tensor), l.tensor > 1);
  EXPECT_EQ(told.contains(CommunicationKind::context), l.context > 1);
  EXPECT_EQ(told.contains(CommunicationKind::expert), l.expert > 1);
  EXPECT_EQ(told.contains(CommunicationKind::transfer), l.pipeline > 1);
  EXPECT_TRUE(told.contains(CommunicationKind::gradients));
}

// Links without limits: nothing is exposed but latency, which is none here.
TEST(Explain, FreeCommunicationIsNotExposed) {
  Planned p("llama3-8b", "dgx-h100:2", 64);
  for (LinkLevel& level : p.problem.cluster.levels) {
    level.latency_s = 0.0;
    level.bandwidth_bytes_per_s = 1e15;
  }
  p.problem.bounds.tensor = {2};
  p.problem.bounds.pipeline = {4};
  const Plan plan = make_plan(search(p.problem, 1), p.problem);
  ASSERT_GE(plan.prediction.exposed.size(), 3u);
  for (const auto& [kind, seconds] : plan.prediction.exposed)
    EXPECT_LT(seconds, 2e-3 * plan.prediction.step_time_s) << enum_name(kind);
}

}  // namespace
}  // namespace mpt::planner
