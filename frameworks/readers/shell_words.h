// SPDX-License-Identifier: Apache-2.0
#pragma once

// Words of the commands in a shell script, with its own variables expanded. Nothing is run: values that only
// a shell can compute, such as the output of a command, stay as written and are marked. The grammar is the
// part of POSIX shell and bash that launch scripts use: quotes, comments, assignments, arrays, arithmetic,
// defaults, here-documents and sourced files. All branches of conditions are read, one after the other.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "frameworks/readers/shell_state.h"

namespace mpt::frameworks {

/// The commands of a script in the order of its text, without assignments. `file` is the script's path:
/// sourced files are found in its folder. Text that begins with a flag is a list of arguments, one command
/// for each line. In a list a shell's special letters have no special meaning. Throws UserError for scripts
/// that source each other in a circle, and for words and work beyond the bounds.
std::vector<ShellCommand> shell_commands(const std::string& text, const std::filesystem::path& file,
                                         WorkBudget& budget);
/// What the words leave open: variables that are set in more than one way, and lists that the script lacks.
std::vector<std::string> notes_of_words(const ShellCommand& command);
/// The words of a list of arguments, or of one of its values.
ShellCommand argument_words(const std::string& text, WorkBudget& budget);
/// The words that the script's variables hold at its end.
std::map<std::string, ShellCommand> shell_variables(const std::string& text,
                                                    const std::filesystem::path& file, WorkBudget& budget);

}  // namespace mpt::frameworks
