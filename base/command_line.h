// SPDX-License-Identifier: Apache-2.0
#pragma once

// Shared by the command lines of the three programs: help, exit codes and the form of errors.
//
// Help is written for people, not for the parser. An option's placeholder is its type_name ("FILE", "N"), its
// group is a heading, and its default is at the end of its description. A group named "More..." is shown by
// --help-all alone. Examples and exit codes belong in the footer.

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/words.h"

namespace mpt {

/// The last lines of a program's help, after its examples.
inline constexpr const char* kExitCodes =
    "Exit codes: 0 done; 1 a run failed; 2 wrong input, the message says where and what to do;\n"
    "            3 no GPU where one was asked for; 4 a layout may not fit, or no offer is enough; 130 "
    "interrupted;\n"
    "            70 a defect of this program.";

/// An option that gives its words to `read`, which throws UserError with the option's name.
using WordReader = std::function<void(const std::vector<std::string>& words, const std::string& option)>;
CLI::Option* add_reader(CLI::App& app, const std::string& names, const std::string& what, WordReader read);

/// An option for a number or several numbers, read by the rules of base/words.h: values beyond `rule` are a
/// UserError that names the option. A default that `rule` allows is shown.
template <class T>
CLI::Option* add_number(CLI::App& app, const std::string& names, T& target, const std::string& what,
                        const FieldRule& rule, const char* placeholder = nullptr) {
  const auto read = [&target, rule](const std::vector<std::string>& words, const std::string& option) {
    set_from_words(target, words, option, rule);
  };
  CLI::Option* option = add_reader(app, names, what, read);
  const char* const usual = std::is_integral_v<typename detail::ElementOf<T>::type> ? "N" : "X";
  option->type_name(placeholder != nullptr ? placeholder : usual);
  if constexpr (is_a<T, std::vector>) {
    option->default_str(fmt::format("{}", fmt::join(target, ",")));
  } else if constexpr (!is_a<T, std::optional>) {
    if (double(target) >= rule.minimum && double(target) <= rule.maximum)
      option->default_str(fmt::format("{}", target));
  }
  return option;
}

/// An option for one of several words.
CLI::Option* add_choice(CLI::App& app, const std::string& names, std::string& target, const std::string& what,
                        const std::vector<std::string>& choices);

/// An option that names a file to write. parse_command_line() declares it in the ledger (base/files.h), also
/// if it has its default.
CLI::Option* add_output(CLI::App& app, const std::string& names, std::string& file, const std::string& what);

/// Parses; returns the exit code if the program is done (help, version), nothing if it goes on. Wrong words
/// are a UserError that names the option and, if there is one, the likely intended word. CLI11's own
/// messages, exit codes (105 and others) and help never show.
std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv);

/// The help of a program or of one of its commands; `all` shows the groups that begin with "More", too.
std::string help_text(const CLI::App& app, const std::string& program, bool all);

}  // namespace mpt
