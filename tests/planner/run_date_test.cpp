// SPDX-License-Identifier: Apache-2.0

// When the software of a published run was released, and what follows from it.

#include "planner/validate/run_date.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/planner/run_records.h"

namespace mpt::planner {
namespace {

TEST(RunDate, ReadsAMonthWithOrWithoutADay) {
  EXPECT_EQ(parse_month("2025-06"), (Month{2025, 6}));
  EXPECT_EQ(parse_month("2025-06-30"), (Month{2025, 6}));
  for (const char* text : {"", "2025", "2025-13", "25-06", "June 2025", "2025-06-3000"})
    EXPECT_FALSE(parse_month(text)) << text;
}

TEST(RunDate, ANamedReleaseGoesBeforeThePagesDate) {
  EXPECT_EQ(named_month("performance-summary.md (container 25.11), 2026-08-01"), (Month{2025, 11}));
  EXPECT_EQ(named_month("tag v24.11, 2025-09-01"), (Month{2024, 11}));
  EXPECT_EQ(named_month("training_results_v5.1/x 2026-01-07"), (Month{2025, 11}));
  EXPECT_EQ(named_month("ngc25.04_b200 in training_results_v5.1"), (Month{2025, 4}));
}

TEST(RunDate, IsTheEarliestOfSeveral) {
  EXPECT_EQ(named_month("9ab12 2026-08-01. Run of 2024-07-03."), (Month{2024, 7}));
  EXPECT_EQ(named_month("benchmarks/llama3_h100_202412_torchtitan.md 2026-01-01"), (Month{2024, 12}));
  EXPECT_EQ(named_month("arXiv:2405.09219"), (Month{2024, 5}));
  EXPECT_EQ(named_month("arXiv:2405.09219, 2025-01"), (Month{2025, 1})) << "a revision's own date";
  for (const char* words : {"", "release 2.5.1", "12025-061", "batch 2048-4096"})
    EXPECT_FALSE(named_month(words)) << words;
}

RunRecord read_with(const char* key, const Json& value) {
  Json json = record();
  json["source"] = {{"path", "tag v24.11"}};
  json[key] = value;
  return read_run_record(json, "/0");
}

TEST(RunDate, OfAPageIsTheLatestThatItMayBe) {
  const auto latest = [](const char* path, const char* notes) {
    Json json = record();
    json["source"] = {{"path", path}, {"commit", "9ab12 2026-08-01"}};
    json["notes"] = notes;
    return read_run_record(json, "/0").released_at_the_latest;
  };
  EXPECT_TRUE(latest("docs/README.md", ""));
  EXPECT_FALSE(latest("docs/README.md", "Run of 2024-07-03."));
  EXPECT_FALSE(latest("docs/performance.md (container 25.11)", ""));
  EXPECT_FALSE(latest("commit message of 9ab12", ""));
  Json json = record();
  json["source"] = {{"path", "docs/README.md, 2026-08-01"}};
  json["date"] = "2025-01";
  EXPECT_FALSE(read_run_record(json, "/0").released_at_the_latest);
}

TEST(RunDate, OfTheRecordItselfGoesFirst) {
  EXPECT_EQ(read_with("notes", "").released, (Month{2024, 11}));
  EXPECT_EQ(read_with("date", "2026-02").released, (Month{2026, 2}));
  try {
    read_with("date", "last summer");
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(e.problems().front().where, "/0/date");
  }
}

}  // namespace
}  // namespace mpt::planner
