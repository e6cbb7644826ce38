// SPDX-License-Identifier: Apache-2.0
#pragma once

// Shared by the command lines of the three programs: help, exit codes and the form of errors.
//
// Help is written for people, not for the parser. An option's placeholder is its type_name ("FILE", "N"), its
// group is a heading, and its default stands at the end of its description. A group named
// "More..." is shown by --help-all alone. Examples and exit codes belong in the footer.

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

namespace mpt {

/// The last lines of a program's help, after its examples.
inline constexpr const char* kExitCodes =
    "Exit codes: 0 done; 1 a run failed; 2 wrong input, the message says where and what to do;\n"
    "            3 no GPU where one was asked for; 130 interrupted; 70 a defect of this program.";

/// An option that names a file to write. parse_command_line() declares it in the ledger (base/outputs.h), its
/// default too.
CLI::Option* add_output(CLI::App& app, const std::string& names, std::string& file, const std::string& what);

/// Parses; returns the exit code if the program is done (help, version), nothing if it goes on. Wrong words
/// are a UserError that names the option and, where there is one, what was probably meant. CLI11's own
/// messages, exit codes (105 and others) and help never show.
std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv);

/// The help of a program or of one of its commands; `all` shows the groups that begin with "More", too.
std::string help_text(const CLI::App& app, const std::string& program, bool all);

}  // namespace mpt
