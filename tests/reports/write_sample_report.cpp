// SPDX-License-Identifier: Apache-2.0

// Writes the report of a sample run to stdout, or of its plan alone with the argument "plan".

#include <cstdio>
#include <string>

#include "core/error.h"
#include "reports/html.h"
#include "tests/support/sample_run.h"

int main(int argc, char** argv) {
  return mpt::run_program("write_sample_report", [&] {
    const mpt::test::SampleRun s = mpt::test::sample_run();
    const bool plan_only = argc > 1 && std::string(argv[1]) == "plan";
    const mpt::reports::ReportExtras extras{{}, {{"pipeline", 2, {"loopback", 2, 1e-6, 1e9}}}};
    const std::string page = plan_only ? mpt::reports::plan_report(s.plan, s.program, s.predicted, extras)
                                       : mpt::reports::run_report(s.plan, s.program, s.predicted, s.result);
    std::fputs(page.c_str(), stdout);
    return 0;
  });
}
