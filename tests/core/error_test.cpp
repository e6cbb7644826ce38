// SPDX-License-Identifier: Apache-2.0
#include "core/error.h"

#include <gtest/gtest.h>

namespace mpt {
namespace {

TEST(Error, EachKindHasItsExitCode) {
  EXPECT_EQ(run_program("t", [] { return 0; }), kExitOk);
  EXPECT_EQ(run_program("t", []() -> int { throw UserError(Problem{"f", "x", "y", "z"}); }), kExitUserError);
  EXPECT_EQ(run_program("t", []() -> int { throw RunError("rank 3 died"); }), kExitRunFailed);
  EXPECT_EQ(run_program("t",
                        []() -> int {
                          MPT_CHECK(false, "broken {}", 1);
                          return 0;
                        }),
            kExitInternalError);
  EXPECT_EQ(run_program("t", []() -> int { throw std::bad_alloc(); }), kExitRunFailed);
}

TEST(Error, UserErrorNamesPlaceFoundExpectedAndRemedyOfEveryProblem) {
  const UserError error({{"a.json at /x", "3", "a text", "quote it"}, {"b", "nothing", "", ""}});
  const std::string text = error.what();
  for (const char* part : {"a.json at /x", "3", "a text", "quote it", "b: nothing"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
}

TEST(Error, CheckNamesPlaceAndValues) {
  try {
    MPT_CHECK(1 > 2, "wait {} on {}", 7, 9);
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("wait 7 on 9"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("error_test.cpp"), std::string::npos);
  }
}

TEST(Error, NearestNameForgivesCaseAndTyposButNotStrangers) {
  const std::vector<std::string> known{"gpipe", "1f1b", "interleaved"};
  EXPECT_EQ(nearest_name("1f1B", known), "1f1b");
  EXPECT_EQ(nearest_name("interleave", known), "interleaved");
  EXPECT_EQ(nearest_name("completely-else", known), "");
  EXPECT_EQ(did_you_mean("GPipe", known), "; did you mean \"gpipe\"?");
}

}  // namespace
}  // namespace mpt
