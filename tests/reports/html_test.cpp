// SPDX-License-Identifier: Apache-2.0
#include "reports/html.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/json.h"
#include "base/quantity.h"
#include "tests/support/sample_run.h"

namespace mpt::reports {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// What the page's script draws from.
Json data_of(const std::string& page) {
  const std::string mark = "<script type=\"application/json\" id=\"data\">";
  const size_t begin = page.find(mark) + mark.size();
  return Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

TEST(Html, IsOneFileThatLoadsNothing) {
  const test::SampleRun s = test::sample_run();
  const std::string page = run_report(s.plan, s.program, s.predicted, s.result);
  for (const char* outside : {"https://", "src=", "@import", "url(h", "<link", "fetch("})
    EXPECT_EQ(count(page, outside), 0u) << outside;
  // The one address is the name of the SVG namespace, which nothing loads.
  EXPECT_EQ(count(page, "http://"), count(page, "http://www.w3.org/2000/svg"));
  EXPECT_EQ(count(page, "{{"), 0u) << "a part was not filled in";
}

TEST(Html, HoldsWhatThePlanAndTheRunSay) {
  const test::SampleRun s = test::sample_run();
  const std::string page = run_report(s.plan, s.program, s.predicted, s.result);
  for (const char* part :
       {"It is the fastest of those that fit.", "memory: 40 layouts of tp1", "Beside published runs of mpt",
        "step time", "120 layouts", "\"steps\"", "predicted"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(plan_report(s.plan, s.program, s.predicted).find("\"steps\""), std::string::npos);
}

TEST(Html, HostileNamesStayText) {
  test::SampleRun s = test::sample_run();
  s.plan.model.name = "</script><script>alert(1)</script><b>&\"'";
  s.plan.reasons = {"</script><img src=x onerror=alert(1)>", "bad \xff\xfe bytes"};
  const std::string page = plan_report(s.plan, s.program, s.predicted);
  EXPECT_EQ(count(page, "<script>alert"), 0u);
  EXPECT_EQ(count(page, "<img"), 0u);
  EXPECT_EQ(count(page, "</script>"), 2u);
}

TEST(Html, NamesThatLookLikeMarksStayText) {
  test::SampleRun s = test::sample_run();
  s.plan.model.name = "{{data}} {{script}} {{title}}";
  const std::string page = plan_report(s.plan, s.program, s.predicted);
  EXPECT_NE(page.find("<title>{{data}} {{script}} {{title}} on "), std::string::npos);
  EXPECT_EQ(count(page, "\"memory_limit\""), 1u);
}

TEST(Html, EscapesWhatNoDocumentMayHold) {
  EXPECT_EQ(escape_html("<a>\x01\x1b\xff & \"b\""), "&lt;a&gt;\\x01\\x1b\\xff &amp; &quot;b&quot;");
}

TEST(Html, StaysSmallForALargePlan) {
  const test::SampleRun s = test::sample_run("1f1b", 16, 512);
  const std::string page = run_report(s.plan, s.program, s.predicted, s.result);
  EXPECT_LT(page.size(), size_t{2} << 20);
  EXPECT_NE(page.find("\"cut\":true"), std::string::npos);
}

TEST(Html, DoesWithoutAStoredPrediction) {
  const test::SampleRun s = test::sample_run();
  EXPECT_NE(run_report(s.plan, s.program, std::nullopt, s.result).find("measured"), std::string::npos);
}

TEST(Html, MemoryOverTheStepPeaksWhereThePlanSays) {
  for (const char* schedule : {"1f1b", "zb-h1", "interleaved"}) {
    const test::SampleRun s = test::sample_run(schedule);
    const Json data = data_of(plan_report(s.plan, s.program, s.predicted));
    ASSERT_EQ(data["memory_over_time"].size(), s.plan.prediction.memory.size());
    for (const Json& line : data["memory_over_time"]) {
      int64_t highest = 0, lowest = INT64_MAX;
      for (const Json& point : line[1]) {
        highest = std::max(highest, point.get<int64_t>());
        lowest = std::min(lowest, point.get<int64_t>());
      }
      const auto rank = line[0].get<size_t>();
      EXPECT_EQ(highest, s.plan.prediction.memory[rank].peak_bytes) << schedule << ", rank " << rank;
      EXPECT_LT(lowest, highest) << schedule << ", rank " << rank;
      EXPECT_EQ(line[1].back(), s.program.static_bytes[rank]) << "all activations are freed";
    }
  }
}

TEST(Html, OfManyPassesMemoryIsDrawnAsTheirEnvelope) {
  const test::SampleRun s = test::sample_run("1f1b", 4, 128);
  const Json data = plan_report_data(s.plan, s.program, s.predicted);
  for (const Json& line : data["memory_over_time"]) {
    const auto points = line[1].get<std::vector<int64_t>>();
    const auto peak = *std::max_element(points.begin(), points.end());
    EXPECT_EQ(peak, s.plan.prediction.memory[line[0].get<size_t>()].peak_bytes);
    // Filled once and emptied once: between the two no point falls.
    const auto first = std::find(points.begin(), points.end(), peak);
    const auto last = std::find(points.rbegin(), points.rend(), peak).base();
    EXPECT_TRUE(std::all_of(first, last, [&](int64_t v) { return v == peak; }));
    EXPECT_GT(last - first, ptrdiff_t(points.size() / 2));
  }
}

TEST(Html, SaysHowSureItIsAndWhichStageHasWhichLayers) {
  test::SampleRun s = test::sample_run("interleaved");
  s.plan.prediction.confidence = {26.9, 31.4, 0.978};
  const Json data = plan_report_data(s.plan, s.program, s.predicted);
  EXPECT_EQ(data["headline"][0][2], "26.9 to 31.4 s in 8 of 10 cases");
  EXPECT_NE(data["headline"][3][2].get<std::string>().find("; fits: 97%"), std::string::npos);
  const auto& layers = s.plan.layout.layers_per_stage;
  ASSERT_EQ(layers.size(), 2 * data["memory"].size());
  for (const Json& m : data["memory"]) {
    const auto rank = m["rank"].get<size_t>();
    EXPECT_EQ(m["layers"], fmt::format("{}+{}", layers[rank], layers[rank + data["memory"].size()]));
  }
}

TEST(Html, SaysOfEachLayoutHowSureItFits) {
  test::SampleRun s = test::sample_run();
  s.plan.ranking[0].confidence = {26.9, 31.4, 0.978};
  s.plan.ranking[1].confidence = {};
  const Json data = plan_report_data(s.plan, s.program, s.predicted);
  EXPECT_EQ(data["ranking"][0][9], "97%");
  EXPECT_EQ(data["ranking"][1][9], "");
}

TEST(Html, SaysHowManyDevicesAreUsed) {
  test::SampleRun s = test::sample_run();
  s.plan.cluster.devices = 2 * s.plan.layout.ranks();
  const Json data = plan_report_data(s.plan, s.program, s.predicted);
  EXPECT_NE(data["subtitle"].get<std::string>().find(fmt::format("of which {} ", s.plan.layout.ranks())),
            std::string::npos);
}

TEST(Html, ThePartsOfAStepAddUpToIt) {
  test::SampleRun s = test::sample_run();
  Prediction& p = s.plan.prediction;
  const double idle_s = p.step_time_s * p.bubble_share;
  ASSERT_GT(idle_s, 0.0);
  p.exposed = {{CommunicationKind::tensor, 0.1 * (p.step_time_s - idle_s)},
               {CommunicationKind::transfer, 0.25 * idle_s},
               {CommunicationKind::gradients, 0.5 * idle_s}};
  double step_s = 0.0, told_idle_s = 0.0, causes_of_idle_s = 0.0, bubble_s = 0.0;
  const Json data = data_of(plan_report(s.plan, s.program, s.predicted));
  for (const Json& part : data["parts"]) {
    const auto name = part[0].get<std::string>();
    const auto seconds = part[1].get<double>();
    EXPECT_TRUE(part[2].is_null()) << name;
    (name.rfind("idle: ", 0) == 0 ? causes_of_idle_s : step_s) += seconds;
    if (name == "idle") told_idle_s = seconds;
    if (name == "idle: pipeline bubble") bubble_s = seconds;
  }
  EXPECT_NEAR(step_s, p.step_time_s, 1e-12);
  EXPECT_NEAR(told_idle_s, idle_s, 1e-12);
  EXPECT_NEAR(causes_of_idle_s, idle_s, 1e-12);
  EXPECT_NEAR(bubble_s, 0.25 * idle_s, 1e-12) << "transfers and gradients are no bubble";
}

TEST(Html, ABubbleIsSplitIntoFillAndUnequalStages) {
  test::SampleRun s = test::sample_run();
  Prediction& p = s.plan.prediction;
  p.exposed = {{CommunicationKind::transfer, 0.3 * p.bubble_share * p.step_time_s}};
  p.pipeline_idle = PipelineIdle{0.2 * p.bubble_share, 0.4 * p.bubble_share, 0.4 * p.bubble_share};
  std::map<std::string, double> shares;
  const Json data = data_of(plan_report(s.plan, s.program, s.predicted));
  for (const Json& part : data["parts"])
    shares[part[0]] = part[1].get<double>() / (p.step_time_s * p.bubble_share);
  EXPECT_NEAR(shares["idle: pipeline fill"], 0.2, 1e-12);
  EXPECT_NEAR(shares["idle: unequal stages"], 0.4, 1e-12);
  EXPECT_NEAR(shares["idle: stage transfers"], 0.3, 1e-12);
  EXPECT_NEAR(shares["idle: other waiting"], 0.1, 1e-12);
}

TEST(Html, ARunIsHeadedByWhatWasMeasured) {
  test::SampleRun s = test::sample_run();
  for (StepRecord& step : s.result.steps) step.step_time_s = 2.0 * s.plan.prediction.step_time_s;
  const Json data = data_of(run_report(s.plan, s.program, s.predicted, s.result));
  const Json& headline = data["headline"];
  EXPECT_EQ(headline[0][0], "Step time, measured");
  EXPECT_EQ(headline[0][1], format_seconds(2.0 * s.plan.prediction.step_time_s));
  EXPECT_EQ(headline[0][2], "predicted " + format_seconds(s.plan.prediction.step_time_s));
  EXPECT_EQ(data_of(plan_report(s.plan, s.program, s.predicted))["headline"][0][1],
            format_seconds(s.plan.prediction.step_time_s));
}

TEST(Html, MeasuredPartsAreThoseOfTheRanksAfterTheWarmUp) {
  test::SampleRun s = test::sample_run();
  s.plan.prediction.exposed = {{CommunicationKind::tensor, 0.0}};
  for (StepRecord& step : s.result.steps) {
    const double slow = step.step <= int64_t(warm_up_steps(s.result.steps.size())) ? 100.0 : 1.0;
    step.ranks = {{.rank = 0, .compute_s = 2.0 * slow, .tensor_s = 0.5 * slow, .idle_s = 1.0 * slow},
                  {.rank = 1, .compute_s = 4.0 * slow, .tensor_s = 1.5 * slow, .idle_s = 2.0 * slow}};
  }
  ASSERT_GT(warm_up_steps(s.result.steps.size()), 0u);
  const std::map<std::string, double> expected{
      {"compute", 3.0}, {"tensor-parallel traffic", 1.0}, {"idle", 1.5}};
  size_t found = 0;
  const Json data = data_of(run_report(s.plan, s.program, s.predicted, s.result));
  for (const Json& part : data["parts"]) {
    const auto wanted = expected.find(part[0].get<std::string>());
    if (wanted == expected.end()) continue;
    ++found;
    EXPECT_NEAR(part[2].get<double>(), wanted->second, 1e-12) << wanted->first;
  }
  EXPECT_EQ(found, expected.size());
}

}  // namespace
}  // namespace mpt::reports
