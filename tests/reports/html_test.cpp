// SPDX-License-Identifier: Apache-2.0
#include "reports/html.h"

#include <gtest/gtest.h>

#include "tests/support/sample_run.h"

namespace mpt::reports {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
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

}  // namespace
}  // namespace mpt::reports
