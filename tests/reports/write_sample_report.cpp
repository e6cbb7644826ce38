// SPDX-License-Identifier: Apache-2.0

// Writes the report of a sample run to stdout, or of its plan alone with the argument "plan", or with "many"
// of a plan of many micro-batches.

#include <cstdio>
#include <string>

#include "base/error.h"
#include "reports/html.h"
#include "tests/support/sample_run.h"

int main(int argc, char** argv) {
  return mpt::run_program("write_sample_report", [&] {
    const std::string kind = argc > 1 ? argv[1] : "run";
    const bool many = kind == "many";
    mpt::test::SampleRun s = many ? mpt::test::sample_run("1f1b", 4, 128) : mpt::test::sample_run();
    if (many) s.plan.model.name = "many micro-batches";
    std::string page;
    if (many) {
      page = mpt::reports::plan_report(s.plan, s.program, s.predicted);
    } else if (kind == "plan") {
      s.plan.front = s.plan.ranking;
      mpt::RankedLayout& half = s.plan.front.emplace_back(s.plan.ranking.front());
      half.layout.pipeline /= 2;
      half.step_time_s *= 2.0;
      half.peak_bytes *= 2;
      page =
          mpt::reports::plan_report(s.plan, s.program, s.predicted, {{"Training", "1T tokens take 3 days"}});
    } else {
      page = mpt::reports::run_report(s.plan, s.program, s.predicted, s.result);
    }
    std::fputs(page.c_str(), stdout);
    return 0;
  });
}
