// SPDX-License-Identifier: Apache-2.0
#include "base/process.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace mpt {
namespace {

TEST(Process, ArgumentsReachTheProgramAsTheyAre) {
  const ProcessResult result = run_process({"printf", "%s|", "a b", "$HOME", "`x`; y", "*"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.output, "a b|$HOME|`x`; y|*|");
}

TEST(Process, InputAndExitCodes) {
  const std::string file = testing::TempDir() + "/process.txt";
  write_file_atomically(file, std::string(200'000, 'x'));
  EXPECT_EQ(run_process({"cat"}, file).output.size(), 200'000U);
  EXPECT_EQ(run_process({"cat"}).output, "");
  EXPECT_EQ(run_process({"false"}).code, 1);
  EXPECT_EQ(run_process({"sh", "-c", "kill -9 $$"}).code, 137);
  EXPECT_EQ(run_process({"no-such-program-here"}).code, 127);
}

}  // namespace
}  // namespace mpt
