// SPDX-License-Identifier: Apache-2.0
#include "base/command_line.h"

#include <filesystem>
#include <memory>

#include "base/files.h"
#include "base/module.h"
#include "base/terminal.h"
#include "base/version.h"

namespace mpt {
namespace {

constexpr size_t kColumn = 26;
constexpr const char* kHelpGroup = "Help";

bool is_advanced(const std::string& group) { return group.starts_with("More"); }

std::string help_lines(const std::string& text, const std::string& first) {
  return wrapped(text, first, screen_columns(), /*divides=*/false);
}

std::string entry(const std::string& name, const std::string& description) {
  const std::string label = "  " + name;
  if (description.empty()) return label + "\n";
  if (label.size() + 2 <= kColumn) return help_lines(description, fmt::format("{:<{}}", label, kColumn));
  return label + "\n" + help_lines(description, std::string(kColumn, ' '));
}

// The value's name in help: the option's own word, or a word for its type. The text of checks is left out.
std::string placeholder(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::string own = type.substr(0, type.find(':'));
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

// The option's name as messages print it.
std::string shown_name(const CLI::Option& option) {
  return option.get_positional() ? upper_case(option.get_name()) : option.get_name();
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
  if (!usual.empty() && text.find("default") == std::string::npos) text += " (default: " + usual + ")";
  return text;
}

std::string usage(const CLI::App& app, const std::string& name) {
  std::string line = "Usage: " + name;
  for (const CLI::Option* option : app.get_options())
    if (option->get_positional()) line += " " + positional_name(*option);
  line += " [options]\n";
  if (!app.get_subcommands({}).empty()) line += "       " + name + " COMMAND [options]\n";
  return line;
}

// Groups in the order in which their first options were declared; the group of help is last.
std::vector<std::string> groups_of(const CLI::App& app) {
  std::vector<std::string> groups;
  for (const CLI::Option* option : app.get_options()) {
    const std::string& group = option->get_group();
    if (!contains(groups, group) && !group.empty() && group != kHelpGroup) groups.push_back(group);
  }
  groups.emplace_back(kHelpGroup);
  return groups;
}

// Help entries of one group, or of the positional arguments if `group` is null.
std::string entries_text(const CLI::App& app, const std::string* group) {
  std::string text;
  for (const CLI::Option* option : app.get_options())
    if (option->get_positional() ? group == nullptr : group != nullptr && option->get_group() == *group)
      text += entry(option_name(*option), described(*option));
  return text.empty() ? "" : (group == nullptr ? "\n" : "\n" + *group + ":\n") + text;
}

class HelpFormatter final : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return help_text(*app, name, mode == CLI::AppFormatMode::All);
  }
};

// Sets the formatter and the help options of the program and of all its commands.
void prepare_help(CLI::App& app) {
  app.formatter(std::make_shared<HelpFormatter>());
  const bool more =
      any_of(app.get_options(), [](const CLI::Option* option) { return is_advanced(option->get_group()); });
  app.set_help_flag("-h,--help", more ? "Show the usual options" : "Show this help")->group(kHelpGroup);
  app.set_help_all_flag("--help-all", more ? "Show all options" : "Show this help")
      ->group(more ? kHelpGroup : "");
  for (CLI::App* command : app.get_subcommands({})) prepare_help(*command);
}

// The command that the user named, or the program itself.
const CLI::App& active_app(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? app : active_app(*commands.back());
}

std::vector<std::string> long_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  return names;
}

// Options, and their names in Megatron-LM, DeepSpeed, torchtitan and many scripts. A name that implies a
// value is listed with it.
constexpr std::pair<const char*, const char*> kOtherNames[] = {
#include "generated/OtherNames.inc"
};

std::string option_meant(const std::string& name, const std::vector<std::string>& known) {
  for (const auto& [option, others] : kOtherNames)
    if (contains(known, split_at(option, ' ').front()) && contains(split_at(others, ' '), name))
      return option;
  std::string shortest;  // the shortest known name that begins with the word
  for (const std::string& other : known)
    if (name.size() >= 2 && other.starts_with(name) && (shortest.empty() || other.size() < shortest.size()))
      shortest = other;
  return shortest.empty() ? nearest_name(name, known) : shortest;
}

// The error for a word that no option and no argument took.
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
  const auto commands = mapped<std::string>(active.get_subcommands({}), &CLI::App::get_name);
  const std::string meant = nearest_name(word, commands);
  std::string files;
  if (word.find_first_of("./") != std::string::npos)
    for (const char* name : {"plan", "request", "profile"})
      if (contains(known, name)) files += (files.empty() ? "--" : ", --") + std::string(name);
  problem.found = "not expected here";
  problem.remedy = !meant.empty()   ? "did you mean the command " + meant + "?"
                   : !files.empty() ? "name the option that takes the file: " + files
                                    : "see --help";
  return problem;
}

// The errors for words that no option took, in their order on the command line. The parser also leaves the
// value of an unknown option; it gets no line.
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

// Why the parser failed. This reads the state of the options, because the parser's messages may change.
Problem wrong_words(const CLI::App& active, const CLI::ParseError& error, int argc, char** argv) {
  const std::string last = argv[argc - 1];
  for (const CLI::Option* option : active.get_options()) {
    const bool is_flag = option->get_items_expected_max() == 0;
    if (!is_flag && last.starts_with("-") && option->check_name(last))
      return {last, "no value behind it", "", "see --help"};
    for (int i = 1; is_flag && i < argc; ++i) {
      const std::string word = argv[i], name = word.substr(0, word.find('='));
      if (name != word && name.starts_with("-") && option->check_name(name))
        return {name, "\"" + word.substr(name.size() + 1) + "\"", "no value", "write " + name + " alone"};
    }
  }
  for (const CLI::Option* option : active.get_options()) {
    const std::string name = shown_name(*option);
    const size_t count = option->count(), most = size_t(option->get_items_expected_max());  // 0 for a flag
    if (count == 0 && option->get_required()) return {name, "missing", "", "see --help"};
    if (count > 1 && most == 1)
      return {name, fmt::format("given {} times", count), "one value", "leave out the others"};
    if (count > most && most > 0)
      return {name, fmt::format("{} values", count), fmt::format("at most {}", most), "see --help"};
    for (const CLI::Option* other : option->get_excludes())
      if (count > 0 && other->count() > 0)
        return {name, "given with " + other->get_name(), "one of the two", "leave one of them out"};
  }
  return {"command line", error.what(), "", "see --help"};
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
      if (!value.empty() && (option->get_delimiter() != ',' || list.find(",,") > list.size())) continue;
      refuse_input(name, "\"" + value.substr(0, 40) + "\"",
                   value.empty() ? "a value" : "values with one comma between two of them",
                   !value.empty()           ? ""
                   : option->get_required() ? "give it one"
                                            : "leave the option out");
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
    refuse_input(option->get_name(), "before the command \"" + name + "\"", "options behind the command",
                 "write it after " + name);
  }
}

// A check that accepts everything marks an option as an output.
constexpr const char* kOutput = "output";

bool is_output(CLI::Option& option) {
  try {
    return option.get_validator(kOutput) != nullptr;
  } catch (const CLI::OptionNotFound&) {
    return false;
  }
}

// Declares the files of the program or of the command that was named. Any other word may name an input.
void declare_files(CLI::App& app) {
  if (const auto commands = app.get_subcommands(); !commands.empty()) return declare_files(*commands.back());
  std::vector<NamedFile> outputs, words;
  for (CLI::Option* option : app.get_options()) {
    std::vector<std::string> values = option->results();
    const bool written = is_output(*option);
    if (written && values.empty()) values = {option->get_default_str()};
    for (const auto& value : values) (written ? outputs : words).push_back({shown_name(*option), value});
  }
  files_of_program().set_names(std::move(words));
  for (const NamedFile& output : outputs)
    if (!output.file.empty()) files_of_program().writes(output);
}

}  // namespace

CLI::Option* add_reader(CLI::App& app, const std::string& names, const std::string& what, WordReader read) {
  const std::string name = names.substr(names.rfind(',') + 1);
  const auto callback = [name, read = std::move(read)](const CLI::results_t& words) {
    read(words, name);
    return true;
  };
  return app.add_option(names, callback, what);
}

CLI::Option* add_choice(CLI::App& app, const std::string& names, std::string& target, const std::string& what,
                        const std::vector<std::string>& choices) {
  const auto read = [&target, choices](const std::vector<std::string>& words, const std::string& option) {
    target = words.back();
    if (!contains(choices, target)) detail::refuse_word(option, target, one_of(choices), choices);
  };
  CLI::Option* option = add_reader(app, names, what, read)->type_name("NAME");
  return target.empty() ? option : option->default_str(target);
}

CLI::Option* add_output(CLI::App& app, const std::string& names, std::string& file, const std::string& what) {
  const CLI::Validator mark([](std::string&) { return std::string(); }, "", kOutput);
  CLI::Option* option = app.add_option(names, file, what)->type_name("FILE")->check(mark);
  return file.empty() ? option : option->capture_default_str();
}

std::string help_text(const CLI::App& app, const std::string& program, bool all) {
  const size_t space = std::min(program.find(' '), program.size());
  const std::string name =
      std::filesystem::path(program.substr(0, space)).filename().string() + program.substr(space);
  auto text = help_lines(app.get_description(), "") + "\n" + usage(app, name) + entries_text(app, nullptr);
  for (const auto& group : groups_of(app))
    if (all || !is_advanced(group)) text += entries_text(app, &group);
  const auto commands = app.get_subcommands({});
  if (!commands.empty()) text += fmt::format("\nCommands ({} COMMAND --help):\n", name);
  for (const CLI::App* command : commands) text += entry(command->get_name(), command->get_description());
  const std::string footer = app.get_footer();
  return footer.empty() ? text : text + "\n" + footer + "\n";
}

std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv) {
  const std::string documents = beside_program({"../share/doc/mpt/docs", "../../../docs"});
  app.set_version_flag("--version", version_text() + (documents.empty() ? "" : "\n  docs/: " + documents),
                       "Show the version and what was built in")
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
    throw UserError(wrong_words(active_app(app), error, argc, argv));
  }
  check_order(app);
  check_values(app, argc, argv);
  declare_files(app);
  return std::nullopt;
}

}  // namespace mpt
