// SPDX-License-Identifier: Apache-2.0
#include "base/command_line.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/outputs.h"
#include "base/version.h"

namespace mpt {
namespace {

constexpr size_t kWidth = 100, kColumn = 26;
constexpr const char* kHelpGroup = "Help";

bool is_advanced(const std::string& group) { return group.starts_with("More"); }

// Words of `text` in lines that end before the width; `indent` blanks begin each line but the first.
std::string wrapped(const std::string& text, size_t column, size_t indent) {
  std::string out, word;
  std::istringstream words(text);
  bool first = true;
  while (words >> word) {
    if (!first && column + 1 + word.size() > kWidth) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      out += " ";
      ++column;
    }
    out += word;
    column += word.size();
    first = false;
  }
  return out;
}

std::string entry(const std::string& name, const std::string& description) {
  std::string out = "  " + name;
  if (description.empty()) return out + "\n";
  const bool fits = out.size() + 2 <= kColumn;
  out += fits ? std::string(kColumn - out.size(), ' ') : "\n" + std::string(kColumn, ' ');
  return out + wrapped(description, kColumn, kColumn) + "\n";
}

// Names the value: the option's own word, or one for its type; without what its checks say.
std::string placeholder(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::string own = type.substr(0, type.find(':'));
  if (own == "INT" || own == "UINT") return "N";
  if (own == "FLOAT") return "X";
  return own == "TEXT" ? "WORD" : own;
}

std::string upper_case(std::string text) {
  for (char& letter : text) letter = char(std::toupper(static_cast<unsigned char>(letter)));
  return text;
}

std::string positional_name(const CLI::Option& option) {
  const std::string name = upper_case(option.get_name(true));
  return option.get_required() ? name : "[" + name + "]";
}

std::string option_name(const CLI::Option& option) {
  if (option.get_positional()) return positional_name(option);
  std::string name;
  for (const std::string& letter : option.get_snames()) name += "-" + letter + ", ";
  for (const std::string& word : option.get_lnames()) name += "--" + word + ", ";
  if (!name.empty()) name.resize(name.size() - 2);
  const std::string value = placeholder(option);
  return option.get_items_expected_max() > 0 && !value.empty() ? name + " " + value : name;
}

std::string described(const CLI::Option& option) {
  std::string text = option.get_description(), usual = option.get_default_str();
  std::erase_if(usual, [](char c) { return c == '[' || c == ']' || c == '"'; });
  const bool told = text.find("default") != std::string::npos;
  if (!usual.empty() && !told) text += " (default: " + usual + ")";
  return text;
}

std::string usage(const CLI::App& app, const std::string& name) {
  std::string line = "Usage: " + name;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) line += " " + positional_name(*option);
  }
  line += " [options]\n";
  if (!app.get_subcommands({}).empty()) line += "       " + name + " COMMAND [options]\n";
  return line;
}

// In the order in which the groups' first options were declared, help last.
std::vector<std::string> groups_of(const CLI::App& app) {
  std::vector<std::string> groups;
  for (const CLI::Option* option : app.get_options()) {
    const std::string& group = option->get_group();
    const bool known = std::find(groups.begin(), groups.end(), group) != groups.end();
    if (!known && !group.empty() && group != kHelpGroup) groups.push_back(group);
  }
  groups.emplace_back(kHelpGroup);
  return groups;
}

std::string group_text(const CLI::App& app, const std::string& group) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group() == group && !option->get_positional())
      text += entry(option_name(*option), described(*option));
  }
  return text.empty() ? "" : "\n" + group + ":\n" + text;
}

std::string positionals_text(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) text += entry(option_name(*option), described(*option));
  }
  return text.empty() ? "" : "\n" + text;
}

class HelpFormatter final : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return help_text(*app, name, mode == CLI::AppFormatMode::All);
  }
};

// For the program and its commands.
void prepare_help(CLI::App& app) {
  app.formatter(std::make_shared<HelpFormatter>());
  const auto options = app.get_options();
  const bool more = std::any_of(options.begin(), options.end(),
                                [](const CLI::Option* option) { return is_advanced(option->get_group()); });
  app.set_help_flag("-h,--help", more ? "Show the usual options" : "Show this help")->group(kHelpGroup);
  app.set_help_all_flag("--help-all", more ? "Show all options" : "Show this help")
      ->group(more ? kHelpGroup : "");
  for (CLI::App* command : app.get_subcommands({})) prepare_help(*command);
}

// The command that was named, or the program itself.
const CLI::App& active_app(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? app : active_app(*commands.back());
}

std::vector<std::string> long_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Names in Megatron-LM, DeepSpeed, torchtitan and many scripts, and the options here.
constexpr std::pair<const char*, const char*> kSynonyms[] = {
    {"gbs", "global-batch"},
    {"global-batch-size", "global-batch"},
    {"batch-size", "global-batch"},
    {"train-batch-size", "global-batch"},
    {"mbs", "micro-batch"},
    {"micro-batch-size", "micro-batch"},
    {"train-micro-batch-size-per-gpu", "micro-batch"},
    {"seq-length", "seq"},
    {"seq-len", "seq"},
    {"sequence-length", "seq"},
    {"max-seq-len", "seq"},
    {"tensor-parallel", "tp"},
    {"tensor-parallel-degree", "tp"},
    {"tensor-model-parallel-size", "tp"},
    {"pipeline-parallel", "pp"},
    {"pipeline-parallel-degree", "pp"},
    {"pipeline-model-parallel-size", "pp"},
    {"data-parallel", "dp"},
    {"data-parallel-size", "dp"},
    {"context-parallel", "cp"},
    {"context-parallel-degree", "cp"},
    {"context-parallel-size", "cp"},
    {"expert-parallel", "ep"},
    {"expert-model-parallel-size", "ep"},
    {"expert-tensor-parallel-size", "etp"},
    {"sequence-parallel", "sp"},
    {"zero-stage", "zero"},
    {"recompute-granularity", "recompute"},
    {"activation-checkpointing", "recompute"},
    {"virtual-pipeline-model-parallel-size", "chunks"},
    {"nodes", "gpus"},
    {"nnodes", "gpus"},
    {"world-size", "gpus"},
    {"num-gpus", "gpus"},
    {"gpu", "cluster"},
    {"hardware", "cluster"},
    {"dtype", "precision"},
    {"config", "model"},
    {"learning-rate", "lr"},
    {"max-steps", "steps"},
    {"train-iters", "steps"},
    {"save-interval", "save-every"},
    {"checkpoint", "checkpoints"},
};

std::string option_meant(const std::string& name, const std::vector<std::string>& known) {
  for (const auto& [word, meaning] : kSynonyms) {
    if (name == word && contains(known, meaning)) return meaning;
  }
  std::string shortest;  // of those that the word begins
  for (const std::string& other : known) {
    if (name.size() >= 2 && other.starts_with(name) && (shortest.empty() || other.size() < shortest.size()))
      shortest = other;
  }
  return shortest.empty() ? nearest_name(name, known) : shortest;
}

// Of a word that no option and no argument took.
Problem unexpected(const CLI::App& active, const std::string& word) {
  const std::vector<std::string> known = long_names(active);
  Problem problem{word.substr(0, 80), "unknown option", "", "see --help-all"};
  if (word.starts_with("--")) {
    const std::string name = word.substr(2, word.find('=') - 2);
    const std::string meant = option_meant(name, known);
    problem.where = "--" + name.substr(0, 80);
    if (!meant.empty()) problem.remedy = "did you mean --" + meant + "?";
    return problem;
  }
  std::vector<std::string> commands;
  for (const CLI::App* command : active.get_subcommands({})) commands.push_back(command->get_name());
  const std::string meant = nearest_name(word, commands);
  problem.found = "not expected here";
  problem.remedy = meant.empty() ? "see --help" : "did you mean the command " + meant + "?";
  return problem;
}

// The words that no option took, in their order on the command line. The value of an unknown option is left
// over, too, and gets no line.
UserError unexpected_words(const CLI::App& app, int argc, char** argv) {
  const CLI::App& active = active_app(app);
  std::vector<std::string> left = app.remaining(true);
  std::vector<Problem> problems;
  bool after_unknown_option = false;
  for (int i = 1; i < argc; ++i) {
    const auto found = std::find(left.begin(), left.end(), argv[i]);
    const bool is_left = found != left.end();
    if (is_left) left.erase(found);
    const bool is_option = std::string_view(argv[i]).starts_with("-");
    if (is_left && (is_option || !after_unknown_option)) problems.push_back(unexpected(active, argv[i]));
    after_unknown_option = is_left && is_option;
  }
  if (problems.empty()) problems.push_back({"command line", "too many words", "", "see --help"});
  return UserError(problems);
}

std::vector<std::string> words_between_commas(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) words.push_back(word);
  return words;
}

// "0.000000 to 1000000.000000" is how CLI11 prints a range of whole numbers.
void drop_zeros(std::string& range) {
  const std::string zeros = ".000000";
  for (size_t at = range.find(zeros); at != std::string::npos; at = range.find(zeros))
    range.erase(at, zeros.size());
}

// Of an option that is given too often, or with another one that it excludes; nothing for other messages.
std::optional<Problem> count_problem(const std::string& message) {
  const std::string at_most = ": At Most ", received = " required but received ";
  const size_t limit_at = message.find(at_most), count_at = message.rfind(received);
  if (limit_at != std::string::npos && count_at != std::string::npos) {
    const std::string option = message.substr(0, limit_at),
                      count = message.substr(count_at + received.size());
    const size_t limit_begin = limit_at + at_most.size();
    const std::string limit = message.substr(limit_begin, count_at - limit_begin);
    if (limit == "1")
      return Problem{option, fmt::format("given {} times", count), "one value", "leave out the others"};
    return Problem{option, count + " values", "at most " + limit, "see --help"};
  }
  const std::string excludes = " excludes ";
  const size_t at = message.find(excludes);
  if (at == std::string::npos || !message.starts_with("-")) return std::nullopt;
  return Problem{message.substr(0, at), "given with " + message.substr(at + excludes.size()),
                 "one of the two", "leave one of them out"};
}

// CLI11's messages begin with the option; its ranges and sets are written in the notation of its checks.
Problem plain_problem(const std::string& message) {
  if (const auto counted = count_problem(message)) return *counted;
  Problem problem{"command line", message, "", "see --help"};
  const std::string conversion = "Could not convert: ", required = " is required";
  if (const size_t equals = message.find(" = ");
      message.starts_with(conversion) && equals != std::string::npos) {
    problem.where = message.substr(conversion.size(), equals - conversion.size());
    problem.found = "\"" + message.substr(equals + 3) + "\"";
    problem.expected = "a number";
    return problem;
  }
  if (message.ends_with(required)) {
    problem.where = message.substr(0, message.size() - required.size());
    if (!problem.where.starts_with("-")) problem.where = upper_case(problem.where);
    problem.found = "missing";
    return problem;
  }
  const size_t colon = message.find(": ");
  if (!message.starts_with("-") || colon == std::string::npos) return problem;
  problem.where = message.substr(0, colon);
  problem.found = message.substr(colon + 2);
  // The text that follows a mark, without brackets; the text before the mark is the value.
  const auto cut = [&](const std::string& mark) -> std::string {
    const size_t at = problem.found.find(mark);
    if (at == std::string::npos) return "";
    std::string rest = problem.found.substr(at + mark.size());
    std::erase_if(rest, [](char c) { return std::string_view("[]{}").find(c) != std::string_view::npos; });
    problem.found.resize(at);
    if (problem.found.starts_with("Value ")) problem.found.erase(0, 6);
    problem.found = "\"" + problem.found + "\"";
    return rest;
  };
  const std::string received = " required but received ";
  if (const size_t at = problem.found.find(received);
      problem.found.starts_with("At Most 1 ") && at != std::string::npos) {
    problem.found = "given " + problem.found.substr(at + received.size()) + " times";
    problem.expected = "once";
    return problem;
  }
  if (problem.found.ends_with(" missing")) problem.found = "no value behind it";
  if (std::string range = cut(" not in range "); !range.empty()) {
    const size_t dash = range.find(" - ");
    if (dash != std::string::npos) range.replace(dash, 3, " to ");
    drop_zeros(range);
    problem.expected = "a number from " + range;
  } else if (const std::string set = cut(" not in {"); !set.empty()) {
    const std::vector<std::string> words = words_between_commas(set);
    problem.found += did_you_mean(problem.found.substr(1, problem.found.size() - 2), words);
    problem.expected = fmt::format("one of {}", fmt::join(words, ", "));
  }
  return problem;
}

// CLI11 drops values that are empty.
void check_values(const CLI::App& app, int argc, char** argv) {
  for (const CLI::Option* option : active_app(app).get_options()) {
    if (option->count() == 0 || option->get_positional() || option->get_items_expected_max() == 0) continue;
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      const size_t equals = word.find('=');
      const std::string name = word.substr(0, equals);
      if (!name.starts_with("-") || !option->check_name(name)) continue;
      if (equals == std::string::npos && i + 1 == argc) continue;
      const std::string value = equals == std::string::npos ? argv[i + 1] : word.substr(equals + 1);
      const std::string list = "," + value + ",";
      if (!value.empty() && (option->get_delimiter() != ',' || list.find(",,") == std::string::npos))
        continue;
      throw UserError(Problem{name, "\"" + value.substr(0, 40) + "\"",
                              value.empty() ? "a value" : "values with one comma between two of them",
                              value.empty() ? "leave the option out" : ""});
    }
  }
}

// An option before a command belongs to the program and would be lost.
void check_order(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  if (commands.empty()) return;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    const std::string name = commands.back()->get_name();
    throw UserError(Problem{option->get_name(), "before the command \"" + name + "\"",
                            "options behind the command", "write it after " + name});
  }
}

// The mark of an output is a check that accepts everything.
constexpr const char* kOutput = "output";

bool is_output(CLI::Option& option) {
  try {
    return option.get_validator(kOutput) != nullptr;
  } catch (const CLI::OptionNotFound&) {
    return false;
  }
}

// Of the program or of the command that was named. Any other word may name an input.
void declare_files(CLI::App& app) {
  const auto commands = app.get_subcommands();
  if (!commands.empty()) return declare_files(*commands.back());
  std::vector<NamedFile> outputs, words;
  for (CLI::Option* option : app.get_options()) {
    const std::string name = option->get_positional() ? upper_case(option->get_name()) : option->get_name();
    std::vector<std::string> values = option->results();
    const bool written = is_output(*option);
    if (written && values.empty()) values = {option->get_default_str()};
    for (const std::string& value : values) (written ? outputs : words).push_back({name, value});
  }
  files_of_program().set_names(std::move(words));
  for (const NamedFile& output : outputs) {
    if (!output.file.empty()) files_of_program().writes(output);
  }
}

}  // namespace

CLI::Option* add_output(CLI::App& app, const std::string& names, std::string& file, const std::string& what) {
  const CLI::Validator mark([](std::string&) { return std::string(); }, "", kOutput);
  CLI::Option* option = app.add_option(names, file, what)->type_name("FILE")->check(mark);
  return file.empty() ? option : option->capture_default_str();
}

std::string help_text(const CLI::App& app, const std::string& program, bool all) {
  const size_t space = std::min(program.find(' '), program.size());
  const std::string name =
      std::filesystem::path(program.substr(0, space)).filename().string() + program.substr(space);
  std::string text = wrapped(app.get_description(), 0, 0) + "\n\n" + usage(app, name) + positionals_text(app);
  for (const std::string& group : groups_of(app)) {
    if (all || !is_advanced(group)) text += group_text(app, group);
  }
  const auto commands = app.get_subcommands({});
  if (!commands.empty()) text += fmt::format("\nCommands ({} COMMAND --help):\n", name);
  for (const CLI::App* command : commands) text += entry(command->get_name(), command->get_description());
  const std::string footer = app.get_footer();
  return footer.empty() ? text : text + "\n" + footer + "\n";
}

std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv) {
  app.set_version_flag("--version", version_text(), "Show the version and what was built in")
      ->group(kHelpGroup);
  prepare_help(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {
    app.exit(done);
    return kExitOk;
  } catch (const CLI::ExtrasError&) {
    throw unexpected_words(app, argc, argv);
  } catch (const CLI::ParseError& error) {
    throw UserError(plain_problem(error.what()));
  }
  check_order(app);
  check_values(app, argc, argv);
  declare_files(app);
  return std::nullopt;
}

}  // namespace mpt
