// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/toml_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "frameworks/import.h"

namespace mpt::frameworks {
namespace {

Json toml(const std::string& text) {
  WorkBudget budget("run.toml", kMostImportedBytes);
  return toml_value(text, budget);
}
std::string error_of_toml(const std::string& text) {
  try {
    toml(text);
    return "no error";
  } catch (const UserError& error) {
    return error.what();
  }
}

// The reader by hand took none of these as TOML does.
TEST(TomlFile, ReadsWhatTomlAllows) {
  const Json values = toml(
      "[training]\nseq_len = 8_192 # a comment\nhash = 'a # b'\n\"quoted key\" = \"tab\\t\"\n"
      "[parallelism]\nfsdp.reshard = \"never\"\nstages = [\n  [\"layers.0\"], # first\n  ['layers.1', ],\n]\n"
      "text = \"\"\"\na = [\"\"\"\nratio = 0.5\ninline = { on = true }\n");
  EXPECT_EQ(values["training"]["seq_len"], 8192);
  EXPECT_EQ(values["training"]["hash"], "a # b");
  EXPECT_EQ(values["training"]["quoted key"], "tab\t");
  EXPECT_EQ(values["parallelism"]["fsdp"]["reshard"], "never");
  EXPECT_EQ(values["parallelism"]["stages"].size(), 2U);
  EXPECT_EQ(values["parallelism"]["text"], "a = [");
  EXPECT_EQ(values["parallelism"]["ratio"], 0.5);
  EXPECT_EQ(values["parallelism"]["inline"]["on"], true);
}

TEST(TomlFile, ErrorsNameFileAndLine) {
  for (const char* text : {"[a]\nb = two\n", "[a]\nb = 18446744073709551616\n", "[a]\nb = 1 2\n",
                           "[a]\nb = \"x\n", "[a]\n[a]\n", "[a]\nb\n"})
    EXPECT_NE(error_of_toml(text).find("run.toml at line 2"), std::string::npos) << error_of_toml(text);
}

// 100,000 levels would overflow the stack where the library's tables are built, and again where they end.
TEST(TomlFile, DepthIsBounded) {
  std::string dotted = "a", lists, tables;
  for (int i = 0; i < 100'000; ++i) {
    dotted += ".a";
    lists += '[';
    tables += "{a=";
  }
  for (const std::string& text : {dotted + " = 1\n", "[" + dotted + "]\n", "b = {" + dotted + " = 1}\n",
                                  "b = " + lists + "\n", "b = " + tables + "\n"})
    EXPECT_NE(error_of_toml(text).find("run.toml"), std::string::npos) << error_of_toml(text);
  const std::string most = "[" + dotted.substr(0, 2 * 4096 + 1) + "]\n";
  EXPECT_NE(error_of_toml(most).find("nesting deeper than 32 levels"), std::string::npos);
  EXPECT_NE(error_of_toml("a = [\n" + lists.substr(0, 100) + std::string(100, ']') + "]\n").find("line 2"),
            std::string::npos);
}

// The library looks through all of these for each further one.
TEST(TomlFile, TablesThatAreLookedThroughAreBounded) {
  std::string dotted, lists;
  for (int i = 0; i < 5'000; ++i) {
    dotted += fmt::format("a{}.b = 1\n", i);
    lists += fmt::format("[[a{}]]\n", i);
  }
  for (const std::string& text : {dotted, lists})
    EXPECT_NE(error_of_toml(text).find("at most 4096"), std::string::npos) << error_of_toml(text);
}

}  // namespace
}  // namespace mpt::frameworks
