// SPDX-License-Identifier: Apache-2.0

// An estimated layout that ran: one corrected value of each figure, and one judgement of whether it fits.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/quantity.h"
#include "core/short_form.h"
#include "planner/api.h"
#include "planner/diagnose/judge.h"
#include "planner/explain/details.h"
#include "planner/explain/screen.h"
#include "planner/explain/utilisation.h"
#include "planner/observe/observed_plan.h"
#include "planner/observe/observed_run.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Asked {
  const char *model, *cluster, *layout;
  int64_t batch;
};
// None of them fits by MPT's count.
const Asked kTooLarge[] = {{"qwen3-30b-a3b", "hgx-h800:2", "pp2 dp8 ep8 etp1 zero1 mbs2", 512},
                           {"llama3-70b", "dgx-h100:2", "tp8 pp2", 256},
                           {"llama3-8b", "dgx-h100:1", "dp8 zero3 mbs8", 64}};

PlanRequest requested(const Asked& asked) {
  PlanRequest request;
  request.model.name = asked.model;
  request.cluster.name = asked.cluster;
  request.global_batch = asked.batch;
  request.sequence = 4096;
  request.threads = 1;
  request.bounds = parse_short_form(asked.layout, "test").bounds;
  return request;
}

Estimated ran(const Asked& asked, const std::string& figures) {
  PlanRequest request = requested(asked);
  request.observed = read_observed(std::string(asked.layout) + "=" + figures, "--observed", "");
  return estimate(request);
}

TEST(MeasuredEstimate, WhatRanFitsInEveryFigure) {
  for (const Asked& asked : kTooLarge) {
    const Estimated before = estimate(requested(asked));
    ASSERT_TRUE(before.lacks()) << asked.layout;
    const double step_s = 0.7 * before.plan.prediction.step_time_s;
    const Estimated after = ran(asked, fmt::format("{}s", step_s));
    EXPECT_TRUE(after.fits()) << asked.layout;
    const Plan shown = as_observed(after.plan);
    EXPECT_LE(reports::peak_bytes(shown), shown.memory_limit_bytes) << asked.layout;
    EXPECT_GT(reports::peak_bytes(shown), shown.memory_limit_bytes / 2) << asked.layout;
    EXPECT_EQ(shown.prediction.confidence.fits, 1.0);
    EXPECT_NEAR(shown.prediction.step_time_s / step_s, 1.0, 0.05);
    EXPECT_EQ(describe_verdict(after.plan, after.lacks()), "It fits.\n");
    EXPECT_EQ(shown.ranking.front().step_time_s, shown.prediction.step_time_s);
    EXPECT_EQ(shown.ranking.front().peak_bytes, after.plan.corrected->layouts.front().peak_bytes);
  }
}

TEST(MeasuredEstimate, EveryScreenHasTheCorrectedFigures) {
  for (const Asked& asked : kTooLarge) {
    const double step_s = 0.7 * estimate(requested(asked)).plan.prediction.step_time_s;
    const Estimated e = ran(asked, fmt::format("{}s", step_s));
    const std::string said = format_seconds(as_observed(e.plan).prediction.step_time_s);
    const std::string raw = format_seconds(e.plan.prediction.step_time_s);
    for (const std::string& text : {explain(e.plan), plan_screen(e.plan)}) {
      EXPECT_TRUE(has(text, said)) << text;
      EXPECT_TRUE(has(text, raw + " without the runs")) << text;
      EXPECT_EQ(text.find(raw, text.find(raw) + 1), std::string::npos) << raw << text;
      EXPECT_FALSE(has(text, "CORRECTED ORDER")) << "one layout is no choice";
    }
  }
}

TEST(MeasuredEstimate, MemoryThatWasMeasuredIsNoShareOfLess) {
  const Estimated before = estimate(requested(kTooLarge[0]));
  const auto limit = double(before.plan.memory_limit_bytes);
  const Estimated e =
      ran(kTooLarge[0], fmt::format("{}s,{}B", before.plan.prediction.step_time_s, int64_t(1.05 * limit)));
  EXPECT_TRUE(e.fits());
  const std::string text = describe_figures(e.plan);
  EXPECT_FALSE(has(text, "GiB (10")) << text;
  EXPECT_TRUE(has(text, "GiB on the fullest GPU")) << text;
}

TEST(MeasuredEstimate, OfOneThatRanOutSaysNoLessThanThereIs) {
  const Asked small{"llama3-8b", "dgx-h100:1", "tp2 dp4", 64};
  const Estimated failed = ran(small, "oom");
  EXPECT_FALSE(failed.fits());
  const Plan shown = as_observed(failed.plan);
  EXPECT_GE(reports::peak_bytes(shown), shown.memory_limit_bytes - kGiB / 1000);
}

TEST(MeasuredEstimate, JudgesOnceWhetherItFits) {
  Estimated e = estimate(requested(kTooLarge[0]));
  const Rejection rejection = *e.lacks();
  for (const auto& [fits, words] :
       {std::pair{0.03, "DOES NOT FIT by"}, std::pair{0.21, "Probably DOES NOT FIT (21%) by"},
        std::pair{0.4, "Probably DOES NOT FIT (40%) by"}}) {
    e.plan.prediction.confidence.fits = fits;
    EXPECT_TRUE(describe_verdict(e.plan, e.lacks()).starts_with(words))
        << describe_verdict(e.plan, e.lacks());
  }
  e.plan.prediction.confidence.fits = 0.55;
  EXPECT_TRUE(e.fits());
  EXPECT_EQ(describe_verdict(e.plan, e.lacks()), "May not fit (55%).\n");
  EXPECT_TRUE(has(describe_verdict(e.plan, rejection), "stage 0 needs"));
}

// The best layout is as far off as the measured one: the same ratio counts in both.
TEST(MeasuredEstimate, AnotherLayoutIsHeldAgainstItAsCorrected) {
  const Asked slow{"llama3-70b", "dgx-h100:8", "tp8 pp4 dp2 recompute=full", 256};
  for (const double times : {1.17, 1.3, 3.0}) {
    const Estimated before = estimate(requested(slow));
    const double step_s = times * before.plan.prediction.step_time_s;
    const Estimated e = ran(slow, fmt::format("{}s", step_s));
    EXPECT_NEAR(as_observed(e.plan, before.plan.prediction.step_time_s) / step_s, 1.0, 0.05);
    // The layout itself, as a plan: neither faster nor slower than what was measured.
    const std::string text = describe_against_best(e.plan, as_observed(e.plan), fmt::format("{}s", step_s));
    EXPECT_TRUE(has(text, ": 1.0")) << text;
  }
}

}  // namespace
}  // namespace mpt::planner
