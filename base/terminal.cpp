// SPDX-License-Identifier: Apache-2.0
#include "base/terminal.h"

#include <fmt/color.h>
#include <unistd.h>
#if __has_include(<sys/ioctl.h>)
#include <sys/ioctl.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace mpt {
namespace {

bool starts_code_point(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

std::vector<std::string_view> words_of(std::string_view text) {
  constexpr std::string_view kBlank = " \n";
  std::vector<std::string_view> words;
  for (size_t begin = text.find_first_not_of(kBlank); begin != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kBlank, begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(kBlank, end);
  }
  return words;
}

// Words of a shell command: blanks between single quotes divide nothing.
std::vector<std::string_view> words_of_command(std::string_view command) {
  std::vector<std::string_view> words;
  bool quoted = false;
  size_t begin = std::string_view::npos;
  for (size_t at = 0; at <= command.size(); ++at) {
    const bool blank = at == command.size() || (command[at] == ' ' && !quoted);
    if (!blank && begin == std::string_view::npos) begin = at;
    if (at < command.size() && command[at] == '\'') quoted = !quoted;
    if (!blank || begin == std::string_view::npos) continue;
    words.push_back(command.substr(begin, at - begin));
    begin = std::string_view::npos;
  }
  return words;
}

// The first `columns` code points.
std::string_view head_of(std::string_view text, size_t columns) {
  size_t seen = 0;
  for (size_t at = 0; at < text.size(); ++at)
    if (starts_code_point(text[at]) && seen++ == columns) return text.substr(0, at);
  return text;
}

// Lines of words. A line ends in `mark` if another follows. A longer word is divided if `divides`.
std::string lines_of(const std::vector<std::string_view>& words, std::string_view first, size_t columns,
                     std::string_view mark, bool divides) {
  const std::string blank(columns_of(first), ' ');
  const size_t room = columns - std::min(columns - 1, columns_of(first) + columns_of(mark));
  std::string text(first);
  size_t used = 0;
  const auto next_line = [&] {
    text += std::string(mark) + "\n" + blank;
    used = 0;
  };
  for (std::string_view word : words) {
    if (used > 0 && used + 1 + columns_of(word) > room) next_line();
    if (used > 0) text += ' ';
    used += used > 0 ? 1 : 0;
    while (divides && columns_of(word) > room) {
      const std::string_view head = head_of(word, room);
      text += head;
      word.remove_prefix(head.size());
      next_line();
    }
    text += word;
    used += columns_of(word);
  }
  return text + "\n";
}

std::string styled(bool colours, const fmt::text_style& style, std::string_view text) {
  return colours ? fmt::format(style, "{}", text) : std::string(text);
}

}  // namespace

size_t terminal_columns([[maybe_unused]] std::FILE* stream) {
#ifdef TIOCGWINSZ
  constexpr size_t kNarrowest = 40;  // a window of a few columns holds no words
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return std::max<size_t>(size.ws_col, kNarrowest);
#endif
  return kScreenColumns;
}

size_t screen_columns() { return std::min(terminal_columns(), kScreenColumns); }

size_t columns_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), starts_code_point));
}

std::string wrapped(std::string_view text, std::string_view first, size_t columns, bool divides) {
  return lines_of(words_of(text), first, columns, "", divides);
}

std::string live_line(std::string_view text, std::string_view end, std::FILE* stream) {
  const size_t room = terminal_columns(stream) - 1;  // some terminals wrap after the last column
  std::string line = "\r";
  line += head_of(text, room - std::min(room, columns_of(end)));
  return (line += end) += "\033[K";
}

std::string wrapped_command(std::string_view command, std::string_view first, size_t columns) {
  return lines_of(words_of_command(command), first, columns, " \\", false);
}

std::string shell_word(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

Palette Palette::of(std::FILE* stream) {
  const char* const no_color = std::getenv("NO_COLOR");
  const char* const term = std::getenv("TERM");
  const bool unwanted = no_color != nullptr && *no_color != '\0';
  const bool dumb = term == nullptr || std::string_view(term) == "dumb";
  return Palette(!unwanted && !dumb && isatty(fileno(stream)) == 1);
}

std::string Palette::heading(std::string_view text) const {
  return styled(colours_, fmt::text_style(fmt::emphasis::bold), text);
}
std::string Palette::good(std::string_view text) const {
  return styled(colours_, fmt::fg(fmt::terminal_color::green), text);
}
std::string Palette::caution(std::string_view text) const {
  return styled(colours_, fmt::fg(fmt::terminal_color::yellow), text);
}
std::string Palette::bad(std::string_view text) const {
  return styled(colours_, fmt::fg(fmt::terminal_color::red), text);
}

}  // namespace mpt
