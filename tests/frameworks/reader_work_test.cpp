// SPDX-License-Identifier: Apache-2.0

// Readers of files of others: their work grows no faster than the file.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>
#include <functional>

#include "base/error.h"
#include "base/json.h"
#include "frameworks/import.h"
#include "frameworks/readers/python_file.h"
#include "frameworks/readers/shell_words.h"
#include "frameworks/readers/yaml_file.h"

namespace mpt::frameworks {
namespace {

struct ReaderCase {
  const char* name;
  std::string first, part, last;                                // `part` holds % for its number
  std::function<size_t(const std::string&, WorkBudget&)> read;  // gives the number of values or words

  std::string text(int parts) const {
    std::string all = first;
    for (int i = 0; i < parts; ++i) {
      for (const char c : part) all += c == '%' ? std::to_string(i) : std::string(1, c);
    }
    return all + last;
  }
};

size_t words_of_script(const std::string& text, WorkBudget& budget) {
  size_t words = 0;
  for (const ShellCommand& command : shell_commands(text, {}, budget)) words += command.size();
  return words;
}

std::vector<ReaderCase> reader_cases() {
  const auto json = [](const std::string& t, WorkBudget& b) { return parse_json(t, b).size(); };
  const auto yaml = [](const std::string& t, WorkBudget& b) { return yaml_value(t, b).size(); };
  const auto values = [](const std::string& t, WorkBudget& b) { return python_file(t, b).values.size(); };
  const auto functions = [](const std::string& t, WorkBudget& b) {
    return python_file(t, b).functions.size();
  };
  const auto inner = [](const std::string& t, WorkBudget& b) { return python_file(t, b).values["x"].size(); };
  const auto result = [](const std::string& t, WorkBudget& b) {
    return python_file(t, b).functions.at(0).result.size();
  };
  const auto variables = [](const std::string& t, WorkBudget& b) { return shell_variables(t, {}, b).size(); };
  return {{"JSON keys", "{\"a\": 0", ", \"k%\": %", "}", json},
          {"JSON objects", "[0", ", {\"k\": {\"l\": %}}", "]", json},
          {"YAML keys", "a: 0\n", "k%: %\n", "", yaml},
          {"YAML keys in a line", "{a: 0", ", k%: %", "}", yaml},
          {"YAML maps", "", "- k: %\n  l: x\n", "", yaml},
          {"YAML aliases", "a: &a [1, 2]\n", "k%: *a\n", "", yaml},
          {"Python globals", "", "k% = %\n", "", values},
          {"Python names", "k = [1, 2]\n", "k% = k\n", "", values},
          {"Python dictionary", "x = {", "\"k%\": %, ", "}\n", inner},
          {"Python keywords", "x = f(", "k%=%, ", ")\n", inner},
          {"Python functions", "", "def f%(a=1):\n    return [a]\n", "", functions},
          {"Python calls", "def f(a=1):\n    return [a]\n", "k% = f(%)\n", "", values},
          {"Python members", "def f():\n", "    c.k% = %\n", "    return c\n", result},
          {"shell variables", "", "K%=%\n", "", variables},
          {"shell branches", "if true; then\n", "A=(x)\n", "fi\nrun ${A[@]}\n", words_of_script},
          {"shell array", "A=(x)\n", "A+=(y)\n", "", variables},
          {"shell word", "A=x\nrun \"", "$A % ", "\"\n", words_of_script},
          {"shell words", "run", " --k% %", "\n", words_of_script}};
}

TEST(ReaderWork, DoublesWithTheFile) {
  for (const ReaderCase& c : reader_cases()) {
    double first = 0.0;  // steps for each byte
    for (int parts = 500; parts <= 16'000; parts *= 2) {
      const std::string text = c.text(parts);
      WorkBudget budget("file", kMostImportedBytes);
      c.read(text, budget);
      const double steps = double(budget.spent()) / double(text.size());
      if (first == 0.0) first = steps;
      EXPECT_GE(steps, 0.25) << c.name;
      EXPECT_LE(steps, 1.1 * first) << c.name << ", " << parts;
    }
  }
}

// Processor time: quadratic readers took 1 to 100 s for these.
TEST(ReaderWork, EightyThousandPartsAreReadInAMoment) {
  constexpr int kParts = 80'000;
  for (const ReaderCase& c : reader_cases()) {
    if (std::string_view(c.name) == "shell words") continue;  // has two words a part: beyond a script's bound
    const std::string text = c.text(kParts);
    WorkBudget budget("file", kMostImportedBytes);
    const std::clock_t begin = std::clock();
    const size_t found = c.read(text, budget);
    const double seconds = double(std::clock() - begin) / CLOCKS_PER_SEC;
    EXPECT_LT(seconds, 1.0) << c.name;
    if (!std::string_view(c.name).starts_with("shell")) {
      EXPECT_GE(found, size_t(kParts)) << c.name;
    }
  }
}

std::string error_of_budget(const std::function<void(WorkBudget&)>& read) {
  WorkBudget budget("huge.file", kMostImportedBytes);
  try {
    read(budget);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

// Short texts that stand for long ones: all end with the file and the bound.
TEST(ReaderWork, WhatGrowsWithoutEndIsRefusedByItsSteps) {
  const auto refused = [](const char* name, const std::string& error) {
    EXPECT_NE(error.find("huge.file"), std::string::npos) << name << ": " << error;
    EXPECT_NE(error.find("more than 134217728 steps"), std::string::npos) << name << ": " << error;
  };
  std::string yaml = "a0: &a0 [x, x]\n", python = "a0 = [1, 2]\n";
  for (int i = 1; i < 60; ++i) {
    yaml += fmt::format("a{0}: &a{0} [*a{1}, *a{1}]\n", i, i - 1);
    python += fmt::format("a{0} = [a{1}, a{1}]\n", i, i - 1);
  }
  refused("aliases", error_of_budget([&](WorkBudget& b) { yaml_value(yaml, b); }));
  refused("names", error_of_budget([&](WorkBudget& b) { python_file(python, b); }));
  const std::string letters(1 << 20, 'x');
  refused("long text of a default", error_of_budget([&](WorkBudget& b) {
            std::string text = "def f(a=\"" + letters + "\", b=1):\n    return b\n";
            for (int i = 0; i < 1000; ++i) text += "k = f(b=2)\n";
            python_file(text, b);
          }));
  refused("variable that is asked for", error_of_budget([&](WorkBudget& b) {
            std::string text = "A=" + letters + "\n";
            for (int i = 0; i < 1000; ++i) text += "run ${A:+x}\n";
            shell_commands(text, {}, b);
          }));
  refused("unknown parts of a word", error_of_budget([&](WorkBudget& b) {
            std::string text = "run ";
            for (int i = 0; i < 50'000; ++i) text += fmt::format("$a{}", i);
            shell_commands(text + "\n", {}, b);
          }));
}

TEST(ReaderWork, ScriptsThatSourceEachOtherInACircleAreRefused) {
  const std::filesystem::path folder = testing::TempDir() + "/circles";
  std::filesystem::create_directories(folder);
  const auto error = [&](const char* name) {
    return error_of_budget(
        [&](WorkBudget& b) { shell_commands(read_file(folder / name), folder / name, b); });
  };
  write_file_atomically(folder / "itself.sh", "source ../circles/itself.sh\nrun\n");
  EXPECT_NE(error("itself.sh").find("itself.sh: sources"), std::string::npos) << error("itself.sh");
  write_file_atomically(folder / "one.sh", "source two.sh\n");
  write_file_atomically(folder / "two.sh", "source one.sh\n");
  EXPECT_NE(error("one.sh").find("two.sh: sources"), std::string::npos) << error("one.sh");

  constexpr int kScripts = 15;  // each sources the next one twice
  const std::string comment = "# " + std::string(1 << 16, 'x') + "\n";
  for (int i = 0; i < kScripts; ++i) {
    const std::string next = fmt::format("source {}.sh\n", i + 1);
    write_file_atomically(folder / fmt::format("{}.sh", i), fmt::format("{}{}{}", comment, next, next));
  }
  write_file_atomically(folder / fmt::format("{}.sh", kScripts), comment);
  EXPECT_NE(error("0.sh").find("more than 134217728 steps"), std::string::npos) << error("0.sh");
}

}  // namespace
}  // namespace mpt::frameworks
