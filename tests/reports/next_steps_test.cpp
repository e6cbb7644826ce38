// SPDX-License-Identifier: Apache-2.0
#include "reports/next_steps.h"

#include <gtest/gtest.h>

#include "tests/support/sample_run.h"

namespace mpt::reports {
namespace {

std::string all_of(const std::vector<NextStep>& steps) {
  std::string text;
  for (const NextStep& s : steps) text += s.title + "\n" + s.text + "\n" + s.command + "\n";
  return text;
}

TEST(NextSteps, APlanIsRunByItsFramework) {
  test::SampleRun s = test::sample_run();
  EXPECT_NE(all_of(next_steps(s.plan, "")).find("mpt-run plan.json"), std::string::npos);
  s.plan.layout.execution.edit().framework = "megatron-core";
  EXPECT_NE(all_of(next_steps(s.plan, "a-target")).find("--to a-target,slurm"), std::string::npos);
  EXPECT_NE(all_of(next_steps(s.plan, "")).find("No export writes megatron-core"), std::string::npos);
}

TEST(NextSteps, ALayoutWithLessMemoryIsNamed) {
  test::SampleRun s = test::sample_run();
  const int64_t peak = s.plan.prediction.memory.front().peak_bytes;
  s.plan.ranking[1].peak_bytes = peak;
  EXPECT_EQ(all_of(next_steps(s.plan, "")).find("--memory"), std::string::npos) << "nothing is known to fit";
  for (RankedLayout& ranked : s.plan.ranking) ranked.peak_bytes = int64_t{60} << 30;
  s.plan.ranking[1].peak_bytes = (int64_t{40} << 30) + 1;
  s.plan.prediction.memory.front().peak_bytes = int64_t{60} << 30;
  const std::string text = all_of(next_steps(s.plan, ""));
  EXPECT_NE(text.find(" fits: "), std::string::npos) << text;
  EXPECT_NE(text.find("--memory 40.1GiB"), std::string::npos) << "rounded up, so that it fits: " << text;
}

TEST(NextSteps, ARunFarFromItsProfileIsMeasuredAgain) {
  test::SampleRun s = test::sample_run();
  s.plan.cost.source = "profile";
  for (StepRecord& step : s.result.steps) step.step_time_s = 1.05 * s.plan.prediction.step_time_s;
  EXPECT_EQ(all_of(next_steps(s.plan, s.result)).find("mpt-profile"), std::string::npos);
  for (StepRecord& step : s.result.steps) step.step_time_s = 1.5 * s.plan.prediction.step_time_s;
  EXPECT_NE(all_of(next_steps(s.plan, s.result)).find("mpt-profile"), std::string::npos);
}

}  // namespace
}  // namespace mpt::reports
