// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/shell_words.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "base/json.h"

namespace mpt::frameworks {
namespace {

std::vector<ShellCommand> commands_of(const std::string& script, const std::filesystem::path& file = {}) {
  WorkBudget budget("script", 1 << 23);
  return shell_commands(script, file, budget);
}

// "a b;c": words of the commands.
std::string words(const std::string& script, const std::filesystem::path& file = {}) {
  std::string text;
  for (const ShellCommand& command : commands_of(script, file)) {
    if (!text.empty()) text += ';';
    for (size_t i = 0; i < command.size(); ++i)
      text += (i > 0 ? " " : "") + command[i].text + (command[i].unknown.empty() ? "" : "?") +
              (command[i].several.empty() ? "" : "*");
  }
  return text;
}

TEST(ShellWords, QuotesCommentsAndLines) {
  EXPECT_EQ(words("run --a 1 \\\n  --b '2 3' # no --c\nnext"), "run --a 1 --b 2 3;next");
  EXPECT_EQ(words("--layout Et|(tt|)*2L\n# no\n--x 1 'y;z'"), "--layout Et|(tt|)*2L;--x 1 y;z")
      << "a list is no script";
  EXPECT_EQ(words("echo \"a \\\"b\\\"\" 'c$D' e\\ f"), "echo a \"b\" c$D e f");
}

TEST(ShellWords, AValueInBracketsNeedsNoQuotes) {
  EXPECT_EQ(words("run --freq ([0]*3+[1]*58) --b 1\nnext"), "run --freq ([0]*3+[1]*58) --b 1;next");
  EXPECT_EQ(words("A=(\n --freq ([0]*3+[1]*58)\n --b 1)\nrun ${A[@]}"), "run --freq ([0]*3+[1]*58) --b 1");
  EXPECT_EQ(words("run --open (1, 2"), "run --open (1, 2");
}

TEST(ShellWords, Assignments) {
  EXPECT_EQ(words("A=1\nB=\"$A 2\"\nrun $B \"$B\" ${A}x"), "run 1 2 1 2 1x");
  EXPECT_EQ(words("TP=${TP:-8}\nPP=${PP-2}\n: ${CP:=4}\nrun $TP $PP $CP"), ": 4;run 8 2 4");
  EXPECT_EQ(words("A=x\nrun ${A:-y} ${B:+z} ${A:+w}"), "run x w");
  EXPECT_EQ(words("export A=3 B=4; run $A$B"), "run 34");
}

TEST(ShellWords, ArraysKeepTheirWords) {
  EXPECT_EQ(words("ARGS=(\n  --a 1   # one\n  --b '2 3'\n)\nARGS+=(--c)\nrun ${ARGS[@]} \"${ARGS[@]}\""),
            "run --a 1 --b 2 3 --c --a 1 --b 2 3 --c");
  EXPECT_EQ(words("A=(x)\nA+=(y)\nB=x\nB+=y\nrun ${A[@]} $B"), "run x y xy");
  WorkBudget budget("script", 1 << 20);
  EXPECT_EQ(shell_variables("A=(--x 1)\nB='--y 2'", {}, budget).size(), 2u);
  const auto commands = commands_of("A=(x 'y z')\nrun \"${A[@]}\"");
  EXPECT_EQ(commands.at(0).size(), 3u);
}

TEST(ShellWords, Arithmetic) {
  EXPECT_EQ(words("N=4\nG=8\nrun $((N*G)) $(( $N + ${G} - 2 )) $((N*X))"), "run 32 10 $((N*X))?");
}

TEST(ShellWords, WhatOnlyAShellKnowsIsMarked) {
  EXPECT_EQ(words("run $1 $(hostname -i) `date` ${A%x} $B"), "run $1? $(hostname -i)? `date`? ${A%x}? $B?");
  EXPECT_EQ(words("A=\"--a 1 --b $X --c `date -u` 2\"\nrun $A"), "run --a 1 --b $X? --c `date? -u`? 2");
}

TEST(ShellWords, ConditionsLeaveSeveralValues) {
  EXPECT_EQ(words("if [ $X = 1 ]; then\n  TP=8\nelse\n  TP=4\nfi\nrun $TP"), "[ $X? = 1 ];run 4*");
  EXPECT_EQ(words("TP=2\n[ -n a ] && TP=2\nrun $TP"), "[ -n a ];run 2");
  EXPECT_EQ(words("for TP in 1 2; do run $TP; done"), "run 1*");
  EXPECT_EQ(words("A=(--x)\nif true; then A+=(--y 1); fi\nrun ${A[@]}"), "true;run --x --y* 1*");
}

TEST(ShellWords, HereDocumentsAndSourcedFiles) {
  EXPECT_EQ(words("P=3\ncat <<EOF > run.sh\nrun --a $P\nEOF\nsbatch run.sh"), "run --a 3;cat;sbatch run.sh");
  const std::filesystem::path folder = testing::TempDir();
  write_file_atomically(folder / "values.sh", "HIDDEN=512\n");
  EXPECT_EQ(words("source values.sh\nrun $HIDDEN", folder / "main.sh"), "run 512");
  EXPECT_EQ(words("source $(dirname $0)/values.sh\nrun $HIDDEN", folder / "main.sh"), "run 512");
  EXPECT_EQ(words("source none.sh\nrun $HIDDEN", folder / "main.sh"), "source?;run $HIDDEN?");
}

TEST(ShellWords, WordsThatGrowWithoutEndAreRefused) {
  std::string script = "A=xxxxxxxxxxxxxxxx\n";
  for (int i = 0; i < 40; ++i) script += "A=\"$A$A\"\n";
  EXPECT_THROW(commands_of(script + "run $A\n"), UserError);
}

// Pieces of scripts in any order end, and throw nothing but what is said to users.
TEST(ShellWords, AnyTextIsRead) {
  const char* const pieces[] = {"$",  "${",    "}",      "$((", "))", "(",  ")",      "\"", "'",   "`",
                                "\\", "\n",    " ",      "A",   "=",  "+=", "A=(",    "<<", "EOF", "[@]",
                                ":-", "#",     ";",      "&&",  "if", "fi", "for",    "in", "--x", "1",
                                "*",  "${A:-", "source", "<(",  ">",  "$A", "${A[@]}"};
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (int n = int(random() % 24); n > 0; --n) text += pieces[random() % std::size(pieces)];
    try {
      commands_of(text, "none/script.sh");
    } catch (const UserError&) {
    }
  }
}

}  // namespace
}  // namespace mpt::frameworks
