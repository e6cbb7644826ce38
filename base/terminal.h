// SPDX-License-Identifier: Apache-2.0
#pragma once

// Output of the programs for people: colours on terminals that show them, and lines that fit the screen.
// Texts are built without colours; a Palette passed as an argument colours single words.

#include <cstdio>
#include <string>
#include <string_view>

namespace mpt {

/// The longest line of output for people.
inline constexpr size_t kScreenColumns = 100;
/// Columns of the terminal that `stream` writes to; kScreenColumns if there is none, or its size is unknown.
size_t terminal_columns(std::FILE* stream = stdout);
/// The longest line of text: kScreenColumns, or the width of a narrower terminal.
size_t screen_columns();

/// Columns of a text on a terminal: code points, not bytes.
size_t columns_of(std::string_view text);

/// The text in lines of at most `columns`, each with a newline. The first line begins with `first`; the
/// others begin with blanks of the same width. Lines break at blanks; a longer word is divided if `divides`.
std::string wrapped(std::string_view text, std::string_view first = "", size_t columns = screen_columns(),
                    bool divides = true);
/// A shell command of blank-separated words, which are never divided: lines but the last end in " \".
std::string wrapped_command(std::string_view command, std::string_view first = "",
                            size_t columns = screen_columns());
/// A line that remains until the next one overwrites it. It is cut to the terminal, since a longer one could
/// not be overwritten. `end` is never cut.
std::string live_line(std::string_view text, std::string_view end = "", std::FILE* stream = stdout);
/// A word in the form that a POSIX shell reads back: unchanged, or in single quotes.
std::string shell_word(std::string_view word);

/// Colours of words. Without colours, which is the default, each function returns its text unchanged.
class Palette {
 public:
  Palette() = default;
  /// With colours where `stream` is a terminal, unless NO_COLOR is set (no-color.org) or TERM is "dumb".
  static Palette of(std::FILE* stream);
  static Palette with_colours() { return Palette(true); }

  std::string heading(std::string_view text) const;  // bold
  std::string good(std::string_view text) const;     // green
  std::string caution(std::string_view text) const;  // yellow
  std::string bad(std::string_view text) const;      // red

 private:
  explicit Palette(bool colours) : colours_(colours) {}
  bool colours_ = false;
};

}  // namespace mpt
