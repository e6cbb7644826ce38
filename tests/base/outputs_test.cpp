// SPDX-License-Identifier: Apache-2.0
#include "base/outputs.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"

namespace mpt {
namespace {

namespace fs = std::filesystem;

class Outputs : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "inner");
    std::ofstream(folder_ / "data.txt") << "text";
    fs::create_hard_link(folder_ / "data.txt", folder_ / "hard");
    fs::create_symlink("data.txt", folder_ / "soft");
    fs::create_directory_symlink("inner", folder_ / "alias");
  }

  // The problems that are found.
  static std::vector<Problem> check(const std::vector<NamedFile>& inputs,
                                    const std::vector<NamedFile>& outputs) {
    try {
      check_distinct_files(inputs, outputs);
    } catch (const UserError& error) {
      return error.problems();
    }
    return {};
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / "outputs";
};

TEST_F(Outputs, AnInputIsNotOverwrittenByWhateverNameItHas) {
  for (const char* name : {"data.txt", "hard", "soft", "inner/../data.txt", "./data.txt"}) {
    const auto problems = check({{"--data", folder_ / "data.txt"}}, {{"--log", folder_ / name}});
    ASSERT_EQ(problems.size(), 1u) << name;
    EXPECT_NE(problems[0].where.find("--log"), std::string::npos);
    EXPECT_NE(problems[0].found.find("--data"), std::string::npos);
  }
}

TEST_F(Outputs, TwoOutputsAreNotOneFileAlsoWhereItDoesNotExistYet) {
  EXPECT_EQ(check({}, {{"--trace", folder_ / "inner/new"}, {"--report", folder_ / "alias/new"}}).size(), 1u);
  EXPECT_EQ(check({}, {{"--trace", folder_ / "new"}, {"--report", folder_ / "inner/../new"}}).size(), 1u);
  EXPECT_EQ(check({}, {{"--trace", folder_ / "no/such/new"}, {"--report", folder_ / "no/such/./new"}}).size(),
            1u);
  EXPECT_EQ(check({}, {{"a", folder_ / "hard"}, {"b", folder_ / "soft"}, {"c", folder_ / "data.txt"}}).size(),
            3u);
}

TEST_F(Outputs, DifferentFilesAndNoneArePermitted) {
  EXPECT_TRUE(check({{"--data", folder_ / "data.txt"}, {"--init", folder_}, {"--resume", ""}},
                    {{"--log", folder_ / "inner/data.txt"}, {"--trace", ""}, {"--report", ""}})
                  .empty());
}

TEST_F(Outputs, WhatLosesNothingMayBeShared) {
  EXPECT_TRUE(check({{"plan", "/dev/null"}}, {{"--log", "/dev/null"}, {"--report", "/dev/null"}}).empty());
}

}  // namespace
}  // namespace mpt
