// SPDX-License-Identifier: Apache-2.0

// Writes the report of a sample run to stdout, or of its plan alone with the argument "plan".

#include <cstdio>
#include <string>

#include "core/error.h"
#include "reports/html.h"
#include "tests/support/sample_run.h"

int main(int argc, char** argv) {
  return mpt::run_program("write_sample_report", [&] {
    mpt::test::SampleRun s = mpt::test::sample_run();
    const bool plan_only = argc > 1 && std::string(argv[1]) == "plan";
    std::string page;
    if (plan_only) {
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
