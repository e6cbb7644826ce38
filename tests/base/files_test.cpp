// SPDX-License-Identifier: Apache-2.0
#include "base/files.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/json.h"

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
    fs::create_symlink("inner/new", folder_ / "empty link");
  }

  // The error of declaring both, in either order; "" if there is none.
  static std::string error_of(const fs::path& input, const NamedFile& output, bool output_first) {
    FileLedger ledger;
    ledger.set_names({{"--model", "tiny-gpt"}, {"--data", input}});
    try {
      if (output_first) ledger.writes(output);
      ledger.reads(input);
      if (!output_first) ledger.writes(output);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }
  static bool overlap(const fs::path& one, const fs::path& other) {
    FileLedger ledger;
    ledger.writes({"--trace", one});
    try {
      ledger.writes({"--report", other});
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("--trace"), std::string::npos) << error.what();
      return true;
    }
    return false;
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / "outputs";
};

TEST_F(Outputs, AnInputIsNotOverwrittenByWhateverNameItHas) {
  for (const char* name : {"data.txt", "hard", "soft", "inner/../data.txt", "./data.txt"}) {
    for (const bool output_first : {true, false}) {
      const std::string error = error_of(folder_ / "data.txt", {"--log", folder_ / name}, output_first);
      EXPECT_EQ(error.find("--log"), 0u) << name << ": " << error;
      EXPECT_NE(error.find("the same file as --data"), std::string::npos) << error;
    }
  }
}

TEST_F(Outputs, TwoOutputsAreNotOneFileAlsoWhereItDoesNotExistYet) {
  EXPECT_TRUE(overlap(folder_ / "inner/new", folder_ / "alias/new"));
  EXPECT_TRUE(overlap(folder_ / "inner/new", folder_ / "empty link"));
  EXPECT_TRUE(overlap(folder_ / "new", folder_ / "inner/../new"));
  EXPECT_TRUE(overlap(folder_ / "no/such/new", folder_ / "no/such/./new"));
  EXPECT_TRUE(overlap(folder_ / "hard", folder_ / "soft"));
  EXPECT_FALSE(overlap(folder_ / "new", folder_ / "inner/new"));
}

TEST_F(Outputs, DifferentFilesAndThoseThatLoseNothingArePermitted) {
  EXPECT_EQ(error_of(folder_ / "data.txt", {"--log", folder_ / "inner/data.txt"}, true), "");
  EXPECT_EQ(error_of(folder_ / "none", {"--log", folder_ / "none"}, true), "");  // it is not there to be read
  EXPECT_EQ(error_of("/dev/null", {"--log", "/dev/null"}, true), "");
  EXPECT_FALSE(overlap("/dev/null", "/dev/null"));
}

TEST_F(Outputs, AnErrorThatAReaderKeptToItselfStopsTheWriter) {
  FileLedger ledger;
  ledger.writes({"--log", folder_ / "hard"});
  ledger.check();
  EXPECT_THROW(ledger.reads(folder_ / "data.txt"), UserError);
  EXPECT_THROW(ledger.check(), UserError);
}

TEST_F(Outputs, NamesThatTheProgramMakesAreNoOutputs) {
  const auto is_refused = [&](const fs::path& output, const fs::path& folder) {
    FileLedger ledger;
    ledger.writes({"--log", output});
    try {
      ledger.makes({"--checkpoints", folder}, [](const std::string& name) { return name == "step"; });
    } catch (const UserError&) {
      return true;
    }
    return false;
  };
  fs::create_symlink("inner/step", folder_ / "link to a step");
  for (const char* name : {"inner/step", "alias/step", "inner/step/log", "inner", "link to a step"}) {
    EXPECT_TRUE(is_refused(folder_ / name, folder_ / "inner")) << name;
    EXPECT_TRUE(is_refused(folder_ / name, (folder_ / "inner" / "").string())) << name;
  }
  EXPECT_TRUE(is_refused(folder_ / "later/step", folder_ / "later" / ""));
  for (const char* name : {"inner/log", "inner/log/step", "step"})
    EXPECT_FALSE(is_refused(folder_ / name, folder_ / "inner")) << name;
}

TEST_F(Outputs, EveryReaderOfTheProgramIsInTheLedger) {
  files_of_program().writes({"--log", folder_ / "read later"});
  std::ofstream(folder_ / "read later") << "{}";
  EXPECT_EXIT(
      {
        try {
          load_json(folder_ / "read later");
        } catch (const UserError&) {
          std::exit(7);
        }
        std::exit(1);
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace mpt
