// SPDX-License-Identifier: Apache-2.0
#include "base/command_line.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/words.h"

namespace mpt {
namespace {

struct Words {
  explicit Words(std::vector<std::string> given) : words(std::move(given)) {
    words.insert(words.begin(), "/some/where/mpt-try");
    for (std::string& word : words) pointers.push_back(word.data());
  }
  std::vector<std::string> words;
  std::vector<char*> pointers;
};

// A program with a command, an option of each kind, and a group that is not for everyone.
struct Program {
  CLI::App app{"Tries things."};
  CLI::App* command = nullptr;
  int64_t batch = 0, top = 5;
  std::string plan, file, kind;
  std::vector<std::string> tensor, pair;
  std::vector<int64_t> lengths;
  double price = 0.0;
  bool quick = false;

  Program() {
    app.require_subcommand(0, 1);
    add_number(app, "--global-batch", batch, "Sequences per step", between(1, 512))->group("What to train");
    add_number(app, "--top", top, "Layouts to rank", at_least(1))->group("Output");
    app.add_option("-o,--output", file, "Where the plan goes")->type_name("FILE")->group("Output");
    app.add_option("--tp", tensor, "Tensor-parallel degree")->delimiter(',')->group("More limits");
    app.add_option("--pair", pair, "One or two")->expected(1, 2)->excludes("--top")->group("More limits");
    add_number(app, "--price", price, "Of a GPU-hour", between(0.0, 1e6))->group("More limits");
    add_number(app, "--lengths", lengths, "Of sequences", between(1, 64))
        ->delimiter(',')
        ->expected(1, 4)
        ->group("More limits");
    add_choice(app, "--kind", kind, "each or once", {"each", "once"})->group("More limits");
    command = app.add_subcommand("estimate", "Scores a layout");
    command->add_option("plan", plan, "A plan file")->required();
    command->add_flag("--quick", quick, "Less of it");
    app.footer("Examples:\n  mpt-try --top 3");
  }
  std::optional<int> parse(const std::vector<std::string>& given) {
    Words words(given);
    return parse_command_line(app, int(words.pointers.size()), words.pointers.data());
  }
  std::string error(const std::vector<std::string>& given) {
    try {
      parse(given);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }
};

std::string help_after(const std::vector<std::string>& given, bool all) {
  Program program;
  program.parse(given);
  return help_text(program.app, "/some/where/mpt-try", all);
}

TEST(CommandLine, HelpHasGroupsDefaultsExamplesAndNoNoiseOfTheParser) {
  const std::string help = help_after({"--top", "3"}, false);
  for (const char* part :
       {"Usage: mpt-try [options]\n       mpt-try COMMAND [options]\n",
        "\nWhat to train:\n  --global-batch N",
        "\nOutput:\n  --top N                 Layouts to rank (default: 5)\n  -o, --output FILE",
        "\nCommands (mpt-try COMMAND --help):\n  estimate                Scores a layout\n",
        "\nExamples:\n  mpt-try --top 3\n"})
    EXPECT_NE(help.find(part), std::string::npos) << part << "\nin\n" << help;
  for (const char* noise : {"INT", "TEXT", " in [", "{each", "/some/where", "--tp"})
    EXPECT_EQ(help.find(noise), std::string::npos) << noise << "\nin\n" << help;
  EXPECT_NE(help_after({"--top", "3"}, true).find("\nMore limits:\n  --tp WORD"), std::string::npos);
}

TEST(CommandLine, HelpOfACommandNamesItsArguments) {
  Program program;
  program.parse({"estimate", "p.json"});
  const std::string help = help_text(*program.command, "mpt-try estimate", false);
  EXPECT_NE(help.find("Usage: mpt-try estimate PLAN [options]\n\n  PLAN                    A plan file\n"),
            std::string::npos)
      << help;
}

TEST(CommandLine, LinesOfHelpEndBeforeTheWidth) {
  Program program;
  bool flag = false;
  std::string words;
  for (int i = 0; i < 60; ++i) words += "word ";
  program.app.add_flag("--a-name-that-is-longer-than-the-column", flag, words);
  program.parse({"--top", "3"});
  std::istringstream help(help_text(program.app, "mpt-try", true));
  for (std::string line; std::getline(help, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(CommandLine, AnUnknownOptionIsNamedWithWhatWasMeant) {
  EXPECT_EQ(Program().error({"--gbs", "128"}), "--gbs: unknown option\n    did you mean --global-batch?");
  EXPECT_EQ(Program().error({"--global-bach=128"}),
            "--global-bach: unknown option\n    did you mean --global-batch?");
  EXPECT_EQ(Program().error({"--tensor-model-parallel-size", "8"}),
            "--tensor-model-parallel-size: unknown option\n    did you mean --tp?");
  EXPECT_EQ(Program().error({"--checkpoint-activations"}),
            "--checkpoint-activations: unknown option\n    see --help-all")
      << "no --recompute here";
  EXPECT_EQ(Program().error({"estimate", "p.json", "--quik"}),
            "--quik: unknown option\n    did you mean --quick?");
  EXPECT_EQ(Program().error({"--bananas", "7", "--gbs", "128"}),
            "--bananas: unknown option\n    see --help-all\n  "
            "--gbs: unknown option\n    did you mean --global-batch?");
  // The synonym is one only where the option exists.
  EXPECT_EQ(Program().error({"estimate", "p.json", "--gbs", "8"}),
            "--gbs: unknown option\n    see --help-all");
}

TEST(CommandLine, AStrayWordMayBeACommand) {
  EXPECT_EQ(Program().error({"estimat"}),
            "estimat: not expected here\n    did you mean the command estimate?");
  EXPECT_EQ(Program().error({"now", "please"}),
            "now: not expected here\n    see --help\n  please: not expected here\n    see --help");
}

TEST(CommandLine, AStrayFileGetsTheOptionsThatTakeFiles) {
  const auto error_with = [](const std::vector<std::string>& given) {
    Program program;
    std::string profile, report;
    program.app.add_option("--profile", profile, "Times")->type_name("FILE");
    program.app.add_option("--report", report, "A page")->type_name("FILE")->group("Output");
    Words words(given);
    try {
      parse_command_line(program.app, int(words.pointers.size()), words.pointers.data());
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error_with({"times.json"}),
            "times.json: not expected here\n    name the option that takes the file: --profile");
  EXPECT_EQ(error_with({"runs/1"}),
            "runs/1: not expected here\n    name the option that takes the file: --profile");
  EXPECT_EQ(error_with({"times"}), "times: not expected here\n    see --help");
  EXPECT_EQ(Program().error({"estimate", "p.json", "q.json"}), "q.json: not expected here\n    see --help");
}

TEST(CommandLine, ValuesThatAreRefusedSayWhatMayStandThere) {
  EXPECT_EQ(Program().error({"--global-batch", "0"}),
            "--global-batch: \"0\"; expected whole numbers from 1 to 512");
  EXPECT_EQ(Program().error({"--global-batch", "many"}),
            "--global-batch: \"many\"; expected whole numbers from 1 to 512");
  EXPECT_EQ(Program().error({"--top", "1.5"}), "--top: \"1.5\"; expected whole numbers from 1");
  EXPECT_EQ(detail::range_words(between(1, double(int64_t{1} << 40))), "from 1 to 1099511627776");
  for (const char* price : {"-1", "nan", "inf", "1x", ""})
    EXPECT_EQ(Program().error({"--price", price}),
              std::string("--price: \"") + price + "\"; expected numbers from 0 to 1000000");
  EXPECT_EQ(Program().error({"--lengths", "8,65"}), "--lengths: \"65\"; expected whole numbers from 1 to 64");
  EXPECT_EQ(Program().error({"--lengths", "1,2,3,4,5"}),
            "--lengths: 5 values; expected at most 4\n    see --help");
  EXPECT_EQ(Program().error({"--global-batch"}), "--global-batch: no value behind it\n    see --help");
  EXPECT_EQ(Program().error({"estimate", "--quick=maybe"}),
            "--quick: \"maybe\"; expected no value\n    write --quick alone");
  EXPECT_EQ(Program().error({"estimate"}), "PLAN: missing\n    see --help");
  EXPECT_EQ(Program().error({"--top", "3", "--top=4", "--top", "5"}),
            "--top: given 3 times; expected one value\n    leave out the others");
  EXPECT_EQ(Program().error({"--pair", "1", "2", "3"}),
            "--pair: 3 values; expected at most 2\n    see --help");
  EXPECT_EQ(Program().error({"--pair", "1", "2", "--top", "3"}),
            "--top: given with --pair; expected one of the two\n    leave one of them out");
  EXPECT_EQ(Program().error({"--kind", "onse"}),
            "--kind: unknown \"onse\"; did you mean \"once\"?; expected one of each, once");
}

TEST(CommandLine, ValuesArriveWhereTheyBelong) {
  Program program;
  EXPECT_EQ(program.parse({"--global-batch", "512", "--price=1e6", "--lengths", "8,16", "--kind", "once"}),
            std::nullopt);
  EXPECT_EQ(program.batch, 512);
  EXPECT_EQ(program.price, 1e6);
  EXPECT_EQ(program.lengths, (std::vector<int64_t>{8, 16}));
  EXPECT_EQ(program.kind, "once");
}

TEST(CommandLine, OptionsBeforeACommandAreNotLostInSilence) {
  EXPECT_EQ(Program().error({"--top", "3", "estimate", "p.json"}),
            "--top: before the command \"estimate\"; expected options behind the command\n"
            "    write it after estimate");
}

}  // namespace
}  // namespace mpt
