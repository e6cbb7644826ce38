// SPDX-License-Identifier: Apache-2.0
#include "base/terminal.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

namespace mpt {
namespace {

TEST(Terminal, CountsCodePointsNotBytes) {
  EXPECT_EQ(columns_of(""), 0u);
  EXPECT_EQ(columns_of("plain"), 5u);
  EXPECT_EQ(columns_of("\u00e9\u00e9\u4e2d"), 3u);
}

TEST(Terminal, BreaksLinesAtBlanksBehindAnIndentedBeginning) {
  EXPECT_EQ(wrapped("one two three four", "- ", 10), "- one two\n  three\n  four\n");
  EXPECT_EQ(wrapped("", "- "), "- \n");
  EXPECT_EQ(wrapped("exactly8 nine", "", 8), "exactly8\nnine\n");
  EXPECT_EQ(wrapped("one\ntwo \n", "", 8), "one two\n") << "the end of a line is a blank";
}

TEST(Terminal, DividesAWordThatNoLineHolds) {
  EXPECT_EQ(wrapped("abcdefghij k", "> ", 6), "> abcd\n  efgh\n  ij k\n");
  const std::string word(70, 'x');
  std::istringstream lines(wrapped("a " + word + " b", "  ", 20));
  std::string all;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(columns_of(line), 20u);
    for (const char c : line) all += c == ' ' ? "" : std::string(1, c);
  }
  EXPECT_EQ(all, "a" + word + "b") << "nothing is lost";
}

TEST(Terminal, ACommandGoesOnBehindABackslash) {
  EXPECT_EQ(wrapped_command("mpt-plan --model a --cluster b", "", 20),
            "mpt-plan --model a \\\n--cluster b\n");
  const std::string path(40, 'p');
  EXPECT_EQ(wrapped_command("run " + path + " x", "", 20), "run \\\n" + path + " \\\nx\n")
      << "a path that is divided is another one";
  EXPECT_EQ(wrapped_command("run 'two  words here' x", "", 12), "run \\\n'two  words here' \\\nx\n");
}

TEST(Terminal, QuotesWhatAShellWouldNotReadAsOneWord) {
  EXPECT_EQ(shell_word("dgx-a100:8+dgx-h100:4@12.5GB/s"), "dgx-a100:8+dgx-h100:4@12.5GB/s");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("two words"), "'two words'");
  EXPECT_EQ(shell_word("it's; rm"), "'it'\\''s; rm'");
}

TEST(Terminal, ColoursAreForTerminalsThatShowThem) {
  EXPECT_EQ(Palette().heading("WHY"), "WHY");
  EXPECT_EQ(Palette::with_colours().heading("WHY"), "\033[1mWHY\033[0m");
  EXPECT_EQ(Palette::with_colours().caution("RISK"), "\033[33mRISK\033[0m");
  std::FILE* file = std::tmpfile();
  EXPECT_EQ(Palette::of(file).bad("no terminal"), "no terminal");
  std::fclose(file);
}

}  // namespace
}  // namespace mpt
