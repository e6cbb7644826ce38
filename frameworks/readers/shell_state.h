// SPDX-License-Identifier: Apache-2.0
#pragma once

// The variables and commands of a shell script so far. Scripts share them with the scripts that they source.

#include <cctype>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/values.h"

namespace mpt::frameworks {

inline bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
inline bool is_name_part(char c) {
  return is_name_start(c) || std::isdigit(static_cast<unsigned char>(c)) != 0;
}
inline bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

struct ShellWord {
  std::string text;
  std::set<std::string> unknown;  // variables and commands with values that the script does not state
  std::set<std::string> several;  // variables that the script sets in more than one way
};

using ShellCommand = std::vector<ShellWord>;

struct ShellVariable {
  std::vector<ShellWord> words;
  bool several = false;  // set in more than one way
  bool array = false;
};

struct ShellState {
  ShellState(WorkBudget& work, const std::filesystem::path& file) : budget(work), open{file} {}

  WorkBudget& budget;
  std::vector<std::filesystem::path> open;  // files that are being read, each sourced by the one before
  std::map<std::string, ShellVariable> variables;
  std::vector<ShellCommand> commands;
  size_t words = 0, letters = 0;

  /// Throws UserError for more words than a launch script has.
  void count(const ShellWord& word);
  /// `adds`: NAME+=. `conditional`: the assignment may not be carried out.
  void assign(const std::string& name, ShellVariable value, bool adds, bool conditional);
};

/// Spends the steps of a copy of the words.
void spend_words(WorkBudget& budget, const std::vector<ShellWord>& words);
/// Appends the text of one word to another, and its unknown variables.
void merge_word(ShellWord& to, const ShellWord& from);
/// Their texts, each with an end of line.
std::string texts_of(const std::vector<ShellWord>& words);

/// Whether the first word is a flag.
bool is_argument_list(std::string_view text);
/// "N * ${M}" as "${N} * ${M}": arithmetic allows names without a dollar.
std::string names_in_braces(const std::string& text);

/// Appends `word` to `words`, and clears it. Unknown parts that are not in its text are dropped.
void end_word(ShellWord& word, bool& begun, std::vector<ShellWord>& words, WorkBudget& budget);
/// Adds an expansion without quotes to `word`: its blanks end a word. `begun`: `word` exists, even if empty.
void split_at_blanks(const std::vector<ShellWord>& found, ShellWord& word, bool& begun,
                     std::vector<ShellWord>& words, WorkBudget& budget);

}  // namespace mpt::frameworks
