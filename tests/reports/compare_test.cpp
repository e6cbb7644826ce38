// SPDX-License-Identifier: Apache-2.0
#include "reports/compare.h"

#include <gtest/gtest.h>

#include "tests/support/golden.h"
#include "tests/support/sample_run.h"

namespace mpt::reports {
namespace {

TEST(Compare, RunAndInstructionsAsPrinted) {
  const test::SampleRun s = test::sample_run();
  test::expect_golden("reports/compare_run.txt", comparison_table(compare_run(s.plan, s.result)));
  test::expect_golden("reports/compare_instructions.txt",
                      comparison_table(compare_instructions(s.program, s.predicted, s.result.timeline)));
}

// A step that takes longer than predicted is slower by one figure, whatever row says it.
TEST(Compare, TheErrorHasOneSignAndOneMeaning) {
  test::SampleRun s = test::sample_run();
  EXPECT_NEAR(slowdown_of(s.plan, s.result), 0.1, 1e-9);
  EXPECT_NE(verdict_text(s.plan, s.result).find("Measured is 10.0% slower than predicted"),
            std::string::npos);
  s.plan.prediction.step_time_s *= 1.25;
  EXPECT_NE(verdict_text(s.plan, s.result).find("Measured is 12.0% faster than predicted"),
            std::string::npos);
  int errors = 0;
  for (const ComparisonRow& row : compare_run(s.plan, s.result)) {
    EXPECT_EQ(row.difference.find_first_of("+-"), std::string::npos) << row.difference;
    errors += row.difference.find('%') != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(errors, 1) << "tokens/s is the step time again, memory is as predicted";
}

TEST(RunResult, MedianLeavesTheWarmUpOutWhereThereIsEnough) {
  RunResult result;
  for (const double time : {9.0, 9.0, 9.0, 1.0, 2.0, 3.0, 4.0}) {
    StepRecord record;
    record.step_time_s = time;
    result.steps.push_back(record);
  }
  EXPECT_DOUBLE_EQ(median_step_time_s(result), 2.5);
  result.steps.resize(3);
  EXPECT_DOUBLE_EQ(median_step_time_s(result), 9.0);
  EXPECT_DOUBLE_EQ(median_step_time_s(RunResult{}), 0.0);
}

}  // namespace
}  // namespace mpt::reports
