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

// A stranger's file may name others by links, dots, hidden files, devices and files of the system.
TEST_F(Outputs, NothingOutsideOfTheRootsIsRead) {
  const fs::path outside = folder_ / "data.txt", root = folder_ / "inner";
  fs::create_directories(root / ".git");
  for (const char* name : {"own", ".git/config", ".env"}) std::ofstream(root / name) << "text";
  fs::create_symlink("../data.txt", root / "link");
  fs::create_directory_symlink("..", root / "up");
  fs::create_directory_symlink("/", root / "system");
  fs::create_symlink("own", root / "link within");
  FileLedger ledger;
  const auto refused = [&](const fs::path& file) {
    try {
      ledger.reads(file);
      return false;
    } catch (const UserError& error) {
      EXPECT_EQ(error.problems().front().found, "outside of the recipes, not read");
      return true;
    }
  };
  EXPECT_FALSE(refused(folder_ / "hard"));  // read before: the user named it
  ledger.keep_below({root});
  for (const char* name : {"own", "link within", "./up/inner/own", "not there"}) {
    EXPECT_TRUE(ledger.may_read(root / name)) << name;
    EXPECT_FALSE(refused(root / name)) << name;
  }
  EXPECT_FALSE(refused(outside)) << "another name of what was read before";
  std::ofstream(folder_ / "secret") << "text";
  for (const char* name : {"../secret", "up/secret", "../not there", "system/proc/self/environ",
                           ".git/config", ".env", ".not there", "up", "system/etc/passwd"}) {
    EXPECT_FALSE(ledger.may_read(root / name)) << name;
    EXPECT_TRUE(refused(root / name)) << name;
  }
  for (const char* name : {"/proc/self/environ", "/dev/stdin", "/etc/passwd", "/proc/self/cwd/x"})
    EXPECT_TRUE(refused(name)) << name;
}

TEST_F(Outputs, TheRootOfAllFilesBoundsNothingSoNothingIsRead) {
  FileLedger ledger;
  ledger.keep_below({"/"});
  EXPECT_FALSE(ledger.may_read("/etc/passwd"));
}

// A checked tree may bring a link of the output's name, or of a folder on its way.
TEST_F(Outputs, NoOutputLeadsThroughARoot) {
  const fs::path root = folder_ / "tree", outside = folder_ / "inner";
  fs::create_directories(root);
  fs::create_symlink("../inner/victim", root / "check.xml");
  fs::create_directory_symlink("../inner", root / "folder");
  fs::create_directory_symlink("tree", folder_ / "users");
  const auto refused = [&](const fs::path& output) {
    FileLedger ledger;
    ledger.writes({"--junit", output});
    try {
      ledger.keep_below({root});
      return false;
    } catch (const UserError& error) {
      EXPECT_EQ(std::string(error.what()).find("--junit"), 0u) << error.what();
      return true;
    }
  };
  for (const fs::path& output : {root / "check.xml", root / "new.xml", root / "folder" / "new.xml",
                                 folder_ / "users" / "folder" / "new.xml", outside / ".." / "tree" / "x"})
    EXPECT_TRUE(refused(output)) << output;
  EXPECT_FALSE(refused(outside / "check.xml"));
  EXPECT_FALSE(refused(folder_ / "alias" / "check.xml")) << "a link of the user";
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
