// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/confidence.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/quantity.h"
#include "core/plan.h"
#include "frameworks/framework.h"
#include "planner/memory/memory_model.h"
#include "planner/search/arrangement.h"
#include "profiler/hardware/catalog.h"

namespace mpt::planner {
namespace {

const std::vector<double> kTen{0.8, 0.9, 0.95, 1.0, 1.0, 1.05, 1.1, 1.2, 1.3, 2.0};

// Sources of one framework, each with the same runs.
Evidence alike(const std::string& framework, size_t sources, const std::vector<double>& ratios) {
  Evidence e{{framework}, {}};
  for (size_t s = 0; s < sources; ++s)
    e.sources.push_back({fmt::format("{} {}", framework, s), ratios, ratios, {}, 0});
  return e;
}

const std::vector<Evidence> kOneSource{alike("torchtitan", 1, kTen)};

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// One whose fullest rank takes `share` of what a rank has.
Plan plan_with(double share) {
  Plan plan;
  plan.cluster = profiler::load_cluster("dgx-h100:1", std::nullopt);
  plan.layout.execution = frameworks::load_framework("torchtitan", "test");
  plan.layout.precision = Precision::bf16;
  plan.cost.source = "kernels";
  plan.prediction.step_time_s = 10.0;
  const auto room = double(tensor_bytes(plan.cluster.device, plan.layout.execution));
  plan.prediction.memory.resize(2);
  plan.prediction.memory[1].peak_bytes = int64_t(share * room);
  return plan;
}

Confidence sure(const Plan& plan, const std::vector<Evidence>& all) {
  return confidence(predicted_by(plan), all);
}

double width(const RunsLike& like, const std::vector<Evidence>& all) {
  const auto [low, high] = step_range(step_spread(like, all));
  return std::log(high / low);
}

std::string described(const Plan& plan, const std::vector<Evidence>& all) {
  return fmt::format("{}", fmt::join(evidence_beside(plan, all), "\n"));
}

TEST(Spread, QuantilesAndSharesAreOneTruth) {
  Spread spread;
  spread.add(kTen, 1.0);
  EXPECT_DOUBLE_EQ(spread.quantile(0.5), 1.0);
  EXPECT_DOUBLE_EQ(spread.quantile(0.9), 1.3);
  EXPECT_DOUBLE_EQ(spread.quantile(1.0), 2.0);
  for (const double share : {0.05, 0.1, 0.33, 0.5, 0.8, 0.9, 0.95, 1.0}) {
    EXPECT_GE(spread.share_within(spread.quantile(share)), share - 1e-6);
    EXPECT_LT(spread.share_within(spread.quantile(share) - 1e-6), share);
  }
}

TEST(Spread, ManyRunsOfOneSourceWeighLessThanTheSameRunsOfMany) {
  const std::vector<double> slow(100, 1.5);
  std::vector<Evidence> one{alike("torchtitan", 3, {0.9, 1.0, 1.1})};
  std::vector<Evidence> many = one;
  one.front().sources.push_back({"large", slow, {}, {}, 0});
  for (int s = 0; s < 100; ++s) many.front().sources.push_back({fmt::format("s{}", s), {1.5}, {}, {}, 0});
  const RunsLike like{{"torchtitan"}, ""};
  EXPECT_LT(step_spread(like, many).share_within(1.2), step_spread(like, one).share_within(1.2));
  EXPECT_GT(step_spread(like, one).share_within(1.2), 0.3) << "100 runs of one source do not outvote three";
}

TEST(Confidence, TheIntervalContainsThePredictionWhereRunsTookLessAndMore) {
  const Confidence c = sure(plan_with(0.5), kOneSource);
  ASSERT_TRUE(c.least_s && c.most_s);
  EXPECT_LT(*c.least_s, 10.0);
  EXPECT_GT(*c.most_s, 10.0);
  EXPECT_NEAR(*c.least_s, 8.0, 1e-9);
  EXPECT_NEAR(*c.most_s, 13.0, 1e-9);
}

TEST(Confidence, FewerSourcesMakeTheIntervalWider) {
  const std::vector<double> narrow{0.97, 0.98, 0.99, 1.0, 1.0, 1.01, 1.02, 1.03, 1.04};
  const std::vector<double> wide{0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.3, 1.6, 2.0};
  const RunsLike like{{"torchtitan"}, ""};
  double before = 1e9;
  for (const size_t sources : {0, 1, 2, 8}) {
    const double now = width(like, {alike("torchtitan", sources, narrow), alike("nemo", 20, wide)});
    EXPECT_LE(now, before) << sources;
    before = now;
  }
  EXPECT_LT(before, 0.5 * width(like, {alike("nemo", 20, wide)}));
}

TEST(Confidence, ASourceThatIsLeftOutDoesNotCount) {
  std::vector<Evidence> all{alike("torchtitan", 2, kTen)};
  all.front().sources.push_back({"slow", std::vector<double>(50, 3.0), {}, {}, 0});
  const RunsLike without{{"torchtitan"}, "slow"};
  EXPECT_LT(step_range(step_spread(without, all)).high, 2.5);
  EXPECT_GT(step_range(step_spread({{"torchtitan"}, ""}, all)).high, 2.5);
}

TEST(Confidence, IsNotForPricesThatNoRunHad) {
  Plan plan = plan_with(0.5);
  for (const char* source : {"profile", "roofline"}) {
    plan.cost.source = source;
    EXPECT_FALSE(sure(plan, kOneSource).least_s) << source;
    EXPECT_TRUE(sure(plan, kOneSource).fits) << "memory does not depend on prices";
    EXPECT_TRUE(has(described(plan, kOneSource), "step time: no run tells")) << source;
  }
}

TEST(Confidence, AFrameworkWithoutRunsIsJudgedByAllOthers) {
  const Confidence c = sure(plan_with(0.5), {alike("megatron-bridge", 3, kTen)});
  EXPECT_TRUE(c.least_s && c.most_s && c.fits);
  const Confidence none = sure(plan_with(0.5), {});
  EXPECT_FALSE(none.least_s || none.most_s || none.fits);
}

TEST(NewKinds, AreThoseThatNoRunOfTheirSoftwareHas) {
  std::vector<Evidence> all{alike("torchtitan", 2, kTen), alike("nemo", 2, kTen)};
  all[1].kind = {"nemo", {"experts"}, {"fp8"}, {}};
  const auto new_in = [&](const RunKind& kind, const std::string& left_out = "") {
    std::string text;
    for (const NewPart& part : new_parts({kind, left_out}, all))
      text += fmt::format("{}:{} ", new_kind_deviations().at(part.part).part, part.value);
    return text;
  };
  EXPECT_EQ(new_in({"torchtitan"}), "");
  EXPECT_EQ(new_in({"nemo", {}, {}, {}}), "") << "what is plain is never new";
  EXPECT_EQ(new_in({"torchtitan", {"experts"}, {"fp8"}, {"LoRA"}}),
            "layers:experts precision:fp8 training:LoRA ");
  EXPECT_EQ(new_in({"automodel", {"experts"}, {"fp8"}, {"LoRA"}}), "software:automodel training:LoRA ")
      << "without runs of it other software counts";
  all[0].sources.resize(1);
  EXPECT_EQ(new_in({"torchtitan"}, all[0].sources.front().source), "software:torchtitan ");
}

// Each new part widens, and more of them widen more: step times, margins, and what may not fit.
TEST(NewKinds, AreLessSure) {
  // Without a lone outlier beyond the quantile, which widening would bring in.
  const std::vector<Evidence> all{
      alike("torchtitan", 8, {0.8, 0.9, 0.95, 1.0, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3})};
  const double known = memory_margin({{"torchtitan"}, ""}, all).factor;
  double before = width({{"torchtitan"}, ""}, all), room = known;
  for (const RunKind& kind :
       {RunKind{"torchtitan", {}, {}, {"LoRA"}}, RunKind{"torchtitan", {"linear mixers"}, {}, {"LoRA"}},
        RunKind{"torchtitan", {"linear mixers"}, {"nvfp4"}, {"LoRA"}}}) {
    EXPECT_GT(width({kind, ""}, all), before);
    EXPECT_GE(memory_margin({kind, ""}, all).factor, room) << "kinds of layers add nothing to memory's";
    before = width({kind, ""}, all);
    room = memory_margin({kind, ""}, all).factor;
  }
  EXPECT_GT(room, known);
}

TEST(NewKinds, AreSaid) {
  Plan plan = plan_with(0.5);
  EXPECT_EQ(describe_new_kind(plan), "");
  plan.layout.training.edit().adapter_rank = 8;
  plan.layout.precision = Precision::nvfp4;
  plan.prediction.confidence = sure(plan, kOneSource);
  EXPECT_EQ(describe_new_kind(plan),
            "No published run is of this kind (nvfp4, LoRA with torchtitan): the range is wide.");
  plan.prediction.confidence = sure(plan, {alike("nemo", 2, kTen)});
  plan.prediction.confidence.new_in.resize(1);
  EXPECT_EQ(describe_new_kind(plan), "No published run is of this kind (torchtitan): the range is wide.");
}

// An error of a fifth more and less beside each value, by its own calculation.
TEST(Spread, WidenedHasTheSameMiddleAndMoreVariance) {
  Spread one;
  one.add({2.0}, 3.0);
  const Spread wide = one.widened(0.2);
  EXPECT_NEAR(wide.weight(), 3.0, 1e-12);
  EXPECT_DOUBLE_EQ(wide.quantile(0.5), 2.0);
  EXPECT_NEAR(std::log(wide.quantile(0.9) / 2.0), 0.2 * 1.2816, 1e-4) << "nine in ten of a normal error";
  EXPECT_NEAR(wide.quantile(0.1) * wide.quantile(0.9), 4.0, 1e-9);
}

TEST(Memory, TheFullerTheLessLikelyToFit) {
  double before = 1.0;
  for (double share = 0.3; share < 1.3; share += 0.05) {
    const double now = *sure(plan_with(share), kOneSource).fits;
    EXPECT_LE(now, before) << share;
    before = now;
  }
  EXPECT_DOUBLE_EQ(*sure(plan_with(0.4), kOneSource).fits, 1.0);
  EXPECT_LT(before, 0.2);
}

// What the margin allows is what is likely to fit, to the last tenth of a GiB.
TEST(Memory, TheMarginIsWhereAPlanIsLikelyToFit) {
  const std::vector<Evidence> all{alike("torchtitan", 2, kTen), alike("nemo", 4, {1.0, 1.1, 1.25, 1.4})};
  const MemoryMargin margin = memory_margin({{"torchtitan"}, ""}, all);
  EXPECT_GT(margin.factor, 1.0);
  EXPECT_GE(*sure(plan_with(0.999 / margin.factor), all).fits, MemoryMargin::kLikely);
  EXPECT_LT(*sure(plan_with(1.001 / margin.factor), all).fits, MemoryMargin::kLikely);
  EXPECT_FALSE(memory_risk(plan_with(0.999 / margin.factor), all));
  const auto risk = memory_risk(plan_with(0.97), all);
  ASSERT_TRUE(risk);
  Plan within = plan_with(0.97);
  within.prediction.memory[1].peak_bytes = risk->safe_bytes;
  EXPECT_FALSE(memory_risk(within, all));
  EXPECT_TRUE(has(risk->why, "memory is 97.0% full: ")) << risk->why;
}

// On CPUs, where nothing else has a share. On GPUs the driver and NCCL have, which nobody has measured.
TEST(Memory, OfTheOwnRuntimeOnCpusIsCounted) {
  EXPECT_EQ(memory_margin({{"torchtitan"}, ""}, {}).factor, 1.0);
  const MemoryMargin margin = memory_margin({{Execution{}.framework}, ""}, kOneSource);
  EXPECT_EQ(margin.factor, memory_margin({{"unheard of"}, ""}, kOneSource).factor);
  EXPECT_GT(margin.factor, 1.0);
  Plan plan = plan_with(0.97);
  plan.layout.execution = Execution{};
  EXPECT_TRUE(memory_risk(plan, kOneSource));
  EXPECT_LT(*sure(plan, kOneSource).fits, 1.0);
  plan.cluster.device.kind = DeviceKind::cpu;
  EXPECT_FALSE(memory_risk(plan, kOneSource));
  EXPECT_EQ(
      *sure(plan, kOneSource).fits,
      plan.prediction.memory[1].peak_bytes <= tensor_bytes(plan.cluster.device, Execution{}) ? 1.0 : 0.0);
}

TEST(Memory, RunsThatFailedThoughPredictedToFitCount) {
  std::vector<Evidence> all{alike("torchtitan", 2, {1.0, 1.0, 1.0})};
  const double before = *sure(plan_with(0.95), all).fits;
  all.front().sources.push_back({"failures", {}, {}, {0.8, 0.9, 1.4}, 1});
  const double after = *sure(plan_with(0.95), all).fits;
  EXPECT_LT(after, before);
  all.front().sources.back().ran = 40;
  EXPECT_GT(*sure(plan_with(0.95), all).fits, after) << "more runs of that source did not fail";
  all.front().sources.back().failed = {1.2, 1.4};
  EXPECT_DOUBLE_EQ(*sure(plan_with(0.95), all).fits, before)
      << "failures that were predicted say nothing new";
}

TEST(Confidence, SaysWhatStandsBehindIt) {
  std::vector<Evidence> all = kOneSource;
  all.front().sources.push_back({"failures", {}, {}, {0.9, 0.98, 1.0, 1.2, 3.0}, 0});
  const std::string text = described(plan_with(0.95), all);
  EXPECT_TRUE(
      has(text, "step time: 8 of 10 steps take 0.80 to 1.30 times the prediction (10 runs of 1 source)"))
      << text;
  EXPECT_TRUE(has(text,
                  "out of memory: 3 of 5 runs that ran out were predicted to fit, at 90.0% of memory or "
                  "more; this plan is at 95.0%"))
      << text;
  EXPECT_TRUE(has(text, "memory: 9 of 10 runs use at most ")) << text;
  EXPECT_TRUE(has(text, "likely to fit")) << text;
}

TEST(Confidence, IsPrintedInOneLine) {
  EXPECT_EQ(describe_step(28.6, {26.9, 31.4, 0.978}), "28.6 s, 26.9 to 31.4 s in 8 of 10 cases; fits: 97%");
  EXPECT_EQ(describe_step(28.6, {{}, {}, 1.0}), "28.6 s; fits: 100%");
  EXPECT_EQ(describe_step(28.6, {}), "28.6 s");
  EXPECT_EQ(describe_likelihood(0.9), "90%");
  EXPECT_EQ(describe_likelihood(0.899), "89%") << "never more than it is";
  EXPECT_EQ(describe_likelihood(0.999), "over 99%");
}

// Of the runs behind the built-in evidence, each beside the runs of all other sources alone.
struct Coverage {
  double of_runs = 0.0, of_sources = 0.0;  // the latter: each source counts once
};
Coverage coverage(const std::vector<Evidence>& all) {
  double held = 0.0, runs = 0.0, held_shares = 0.0, sources = 0.0;
  for (const Evidence& e : all) {
    for (const SourceEvidence& s : e.sources) {
      if (s.step_time.empty()) continue;
      const StepRange range = step_range(step_spread({e.kind, s.source}, all));
      const auto within = double(std::count_if(s.step_time.begin(), s.step_time.end(),
                                               [&](double r) { return r >= range.low && r <= range.high; }));
      held += within;
      runs += double(s.step_time.size());
      held_shares += within / double(s.step_time.size());
      sources += 1.0;
    }
  }
  return {held / runs, held_shares / sources};
}

TEST(Confidence, TheIntervalHoldsWhatItSaysOfSourcesThatAreLeftOut) {
  const Coverage c = coverage(published_evidence());
  EXPECT_GE(c.of_runs, 0.75);
  EXPECT_LE(c.of_runs, 0.85);
  EXPECT_GE(c.of_sources, 0.7);
  EXPECT_LE(c.of_sources, 0.85);
}

// A layout of this likelihood has just the room that the quantile asks for.
TEST(Memory, WhatIsCalledLikelyToFitFitsOfSourcesThatAreLeftOut) {
  const std::vector<Evidence>& all = published_evidence();
  double runs = 0.0, beyond_90 = 0.0, beyond_95 = 0.0;
  for (const Evidence& e : all) {
    for (const SourceEvidence& s : e.sources) {
      const Spread used = memory_spread({e.kind, s.source}, all);
      for (const double ratio : s.peak_memory) {
        runs += 1.0;
        beyond_90 += ratio > used.quantile(0.9) ? 1.0 : 0.0;
        beyond_95 += ratio > used.quantile(0.95) ? 1.0 : 0.0;
      }
    }
  }
  EXPECT_GT(runs, 200.0);
  EXPECT_LE(beyond_90 / runs, 0.1);
  EXPECT_LE(beyond_95 / runs, 0.06);
}

}  // namespace
}  // namespace mpt::planner
