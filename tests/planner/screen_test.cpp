// SPDX-License-Identifier: Apache-2.0

// The screen of plans that searches do not bring forth.

#include "planner/explain/screen.h"
#include "planner/explain/confidence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/ties.h"
#include "frameworks/framework.h"
#include "planner/api.h"
#include "planner/explain/explain.h"
#include "planner/memory/memory_model.h"
#include "planner/search/arrangement.h"
#include "profiler/hardware/catalog.h"
#include "reports/utilisation.h"
#include "tests/support/random_problem.h"

namespace mpt::planner {
namespace {

using test::RandomProblem;

Plan searched(uint32_t seed) {
  const RandomProblem r(seed);
  return make_plan(search(r.problem, 5), r.problem);
}

size_t lines_in(const std::string& text) { return size_t(std::count(text.begin(), text.end(), '\n')); }

void expect_narrow(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(columns_of(line), kScreenColumns) << line;
}

TEST(Screen, NamesOfAnyLengthStayWithinTheWidth) {
  Plan plan = searched(7);
  plan.model.name = std::string(300, 'm');
  plan.cluster.name = std::string(150, 'c');
  plan.reasons = {std::string(250, 'r') + " and " + std::string(90, 's')};
  expect_narrow(answer_screen(plan));
  expect_narrow(planner::explain(plan));
}

TEST(Screen, ManyLayoutsAndReasonsStayWithinTheLines) {
  Plan plan = searched(7);
  for (int64_t n = 2; n < 60; ++n) {
    RankedLayout other = plan.ranking.front();
    other.layout.micro_batch = 100 + n;
    other.step_time_s *= 1.0 + 0.01 * double(n);
    plan.ranking.push_back(other);
    plan.reasons.push_back(
        "One of many reasons that are told of this plan, all of them as long as two lines of a screen are.");
  }
  ScreenOptions options;
  options.training = "15T tokens take 84.1 days";
  options.next = {{"mpt-plan --model a --cluster b", "keep the plan"}, {"mpt-plan c", "draw it"}};
  for (const size_t lines : {kScreenLines, kScreenLines - 3}) {
    options.lines = lines;
    const std::string text = answer_screen(plan, options);
    EXPECT_LE(lines_in(text), lines) << text;
    for (const char* part : {"RECOMMENDED", "ALTERNATIVES", "WHY", "NEXT", "Searched all"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
  options.lines = 1000;
  EXPECT_NE(answer_screen(plan, options).find("mbs159"), std::string::npos) << "all where there is room";
}

TEST(Screen, NoTwoAlternativesLookTheSame) {
  Plan plan = searched(7);
  plan.ranking.resize(1);
  RankedLayout other = plan.ranking.front();
  std::swap(other.layout.layers_per_stage.front(), other.layout.layers_per_stage.back());
  plan.ranking.push_back(other);  // the plan's own short form
  other.layout.micro_batch *= 64;
  other.step_time_s *= 1.3;
  other.peak_bytes /= 2;
  plan.ranking.push_back(other);
  plan.ranking.push_back(other);
  const std::vector<Alternative> rows = alternatives(plan);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].layout->layout.micro_batch, 64 * plan.layout.micro_batch);
  EXPECT_TRUE(rows[0].trade.starts_with("30.0% slower, ")) << rows[0].trade;
  EXPECT_NE(rows[0].trade.find(" less"), std::string::npos) << rows[0].trade;
}

TEST(Screen, CallsATieWhatTheModelCannotTellApart) {
  Plan plan = searched(7);
  plan.ranking.resize(1);
  RankedLayout other = plan.ranking.front();
  other.layout.micro_batch *= 64;
  other.step_time_s *= 1.0 + 0.9 * kEqualTimes;
  plan.ranking.push_back(other);
  EXPECT_EQ(alternatives(plan).front().trade, "tie, same memory");
  plan.ranking.back().step_time_s *= 1.0 + 0.9 * kEqualTimes;
  EXPECT_EQ(alternatives(plan).front().trade, "1.8% slower, same memory");
}

// However many rows there are, and however few lines: it is what people can run at once.
TEST(Screen, TheSimplestStaysAndIsCalledSo) {
  Plan plan = searched(7);
  for (int64_t n = 2; n < 30; ++n) {
    RankedLayout other = plan.ranking.front();
    other.layout.micro_batch = 100 + n;
    other.step_time_s *= 1.0 + 0.01 * double(n);
    other.role = n == 5 || n == 29 ? Role::simplest : Role::alternative;
    plan.ranking.push_back(other);
  }
  for (const int64_t place : {5, 29}) {
    Plan one = plan;
    for (RankedLayout& r : one.ranking) {
      if (r.layout.micro_batch != 100 + place) r.role = Role::alternative;
    }
    const std::string text = answer_screen(one);
    EXPECT_NE(text.find("mbs" + std::to_string(100 + place)), std::string::npos) << text;
    EXPECT_NE(text.find("simplest"), std::string::npos) << text;
    EXPECT_LE(lines_in(text), kScreenLines);
  }
}

// A plan that published runs call a risk: only an option that a search has tried is named.
TEST(Screen, TheSaferLayoutIsTheLastRowAndItsOptionIsNamedWhereThereIsOne) {
  Plan plan = searched(7);
  plan.cluster = profiler::load_cluster("dgx-h100:1", std::nullopt);
  plan.layout.execution = frameworks::load_framework("megatron-core", "test");
  plan.layout.precision = Precision::bf16;
  plan.memory_limit_bytes = tensor_bytes(plan.cluster.device, plan.layout.execution);
  for (RankMemory& m : plan.prediction.memory) m.peak_bytes = plan.memory_limit_bytes;
  plan.ranking.resize(1);
  plan.ranking.front().peak_bytes = plan.memory_limit_bytes;
  EXPECT_NE(describe_figures(plan).find("RISK  memory is 100.0% full"), std::string::npos);
  EXPECT_EQ(answer_screen(plan).find("--memory"), std::string::npos)
      << "nobody knows whether anything fits it";
  RankedLayout other = plan.ranking.front();
  other.layout.micro_batch *= 64;
  other.step_time_s *= 1.1;
  other.peak_bytes /= 2;
  plan.ranking.push_back(other);
  other.layout.micro_batch *= 2;
  other.peak_bytes = plan.memory_limit_bytes;
  plan.ranking.push_back(other);
  ASSERT_EQ(alternatives(plan).size(), 2u);
  EXPECT_EQ(alternatives(plan).back().layout, &plan.ranking[1]);
  const std::string safer = "; safer: " + memory_risk(plan, published_evidence())->option();
  EXPECT_NE(alternatives(plan).back().trade.find(safer), std::string::npos)
      << alternatives(plan).back().trade;
  EXPECT_NE(describe_figures(plan).find(safer), std::string::npos) << describe_figures(plan);
}

TEST(Screen, ARooflineIsSaidInTheFirstLines) {
  Plan plan = searched(7);
  plan.cost.source = "roofline";
  EXPECT_NE(describe_task(plan).find("NOTE  Prices are a roofline estimate"), std::string::npos);
  plan.cost.source = "kernels";
  EXPECT_EQ(describe_task(plan).find("NOTE"), std::string::npos);
}

TEST(Screen, PartsOfTheStepAddUpAndIdleIsOneNumber) {
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    const RandomProblem r(seed);
    const SearchResult result = search(r.problem, 1);
    if (result.best.empty()) continue;
    const Plan plan = make_plan(result, r.problem);
    double all = 0.0, idle = 0.0;
    for (const reports::TimePart& part : reports::time_parts(plan)) {
      EXPECT_GE(part.seconds, -1e-12) << part.what;
      all += part.seconds;
      idle += part.idle ? part.seconds : 0.0;
    }
    const double step = plan.prediction.step_time_s;
    EXPECT_NEAR(all, step, 1e-9 * step);
    EXPECT_NEAR(idle, plan.prediction.bubble_share * step, 1e-9 * step);
    EXPECT_NEAR(idle, breakdown(r.problem, result.best.front()).idle_s, 1e-9 * step);
  }
}

TEST(Screen, NextCommandsArePrintedWhole) {
  const std::string path(120, 'p');
  const std::string text =
      describe_next({{"mpt-plan -o " + path, "keep the plan"}, {"mpt-plan x", "draw it"}});
  EXPECT_NE(text.find(path), std::string::npos) << "a path that is broken is no path";
  EXPECT_NE(text.find("  mpt-plan x  # draw it\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace mpt::planner
