// SPDX-License-Identifier: Apache-2.0
#include "reports/trace.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/json.h"
#include "tests/support/golden.h"
#include "tests/support/sample_run.h"

namespace mpt::reports {
namespace {

TEST(Trace, HasATrackPerRankAndStreamAndEveryInstructionOnEachOfItsLanes) {
  const test::SampleRun s = test::sample_run("interleaved", 2, 4);
  const Json trace = parse_json(
      trace_json(s.program, {{"measured", s.result.timeline}, {"predicted", s.predicted}}), "trace");
  std::set<std::string> processes;
  size_t spans = 0, lanes = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "M" && event["name"] == "process_name") processes.insert(event["args"]["name"]);
    if (event["ph"] != "X") continue;
    ++spans;
    EXPECT_GE(event["dur"].get<double>(), 0.0);
    EXPECT_LT(event["tid"].get<int>(), kStreamCount);
  }
  for (InstructionId id = 0; id < s.program.size(); ++id) lanes += s.program.lanes(id).size();
  EXPECT_EQ(spans, 2 * lanes);
  EXPECT_EQ(processes, (std::set<std::string>{"measured, pipeline rank 0", "measured, pipeline rank 1",
                                              "predicted, pipeline rank 0", "predicted, pipeline rank 1"}));
}

TEST(Trace, MemoryOverTimeReachesTheRanksPeak) {
  const test::SampleRun s = test::sample_run("1f1b", 1, 4);
  const Json trace = parse_json(trace_json(s.program, {{"predicted", s.predicted}}), "trace");
  std::vector<int64_t> highest(size_t(s.program.ranks), 0);
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "C") continue;
    int64_t& most = highest[event["pid"].get<size_t>()];
    most = std::max(most, event["args"]["bytes"].get<int64_t>());
  }
  EXPECT_EQ(highest, peak_bytes(s.program));
}

TEST(Trace, AsWritten) {
  const test::SampleRun s = test::sample_run("1f1b", 1, 1);
  test::expect_golden("reports/trace.json", trace_json(s.program, {{"predicted", s.predicted}}));
}

}  // namespace
}  // namespace mpt::reports
