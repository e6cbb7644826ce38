// SPDX-License-Identifier: Apache-2.0
#pragma once

// Text from outside: names and messages of files, other programs and other processes. Control characters in
// it would control a terminal. A line end in it would end a comment of an exported script.

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/ranges.h"

namespace mpt {

/// Longest name of a model, cluster, GPU, link or the like.
inline constexpr size_t kMostNameBytes = 200;

/// Code point and length of a character. Code point -1: the byte begins no UTF-8 character.
struct Character {
  int32_t code = -1;
  size_t bytes = 1;
};
/// The first character of a text that is not empty.
Character first_character(std::string_view text);

/// One line that is safe to print. Control characters, line ends, marks of writing direction, and bytes that
/// are not UTF-8 become escapes such as \x1b or \u2028.
std::string printable(std::string_view text);
/// The same for text of several lines: line feeds and tabs stay, and CR LF becomes a line feed.
std::string printable_lines(std::string_view text);
/// Whether printable() changes nothing.
bool is_printable(std::string_view text);
/// At most `bytes` of the text, never a part of a UTF-8 character.
std::string_view cut_text(std::string_view text, size_t bytes);

/// The parts between occurrences of `letter`, empty parts too.
std::vector<std::string> split_at(std::string_view text, char letter);
/// The text with A to Z in lower case.
std::string lower_case(std::string text);
/// Without blanks, tabs and carriage returns at its ends.
std::string_view without_blanks(std::string_view text);
/// The text with each `letter` replaced by `other`.
std::string replaced(std::string text, char letter, char other);
/// The texts in one, with `between` between two of them.
std::string joined(const std::vector<std::string>& texts, std::string_view between);

/// The number at the start of a text, and its length in characters. Length 0: the text begins with no number
/// that a double holds.
struct LeadingNumber {
  double value = 0.0;
  size_t length = 0;
};
/// Reads as std::from_chars does, except infinity and NaN. Not every library has std::from_chars for doubles.
/// The locale does not matter.
LeadingNumber leading_number(std::string_view text);
/// The whole text as a number; nothing if it is not a number, or T cannot hold it.
template <class T>
std::optional<T> number_of(std::string_view text) {
  if constexpr (std::is_floating_point_v<T>) {
    const LeadingNumber read = leading_number(text);
    return read.length > 0 && read.length == text.size() ? std::optional(T(read.value)) : std::nullopt;
  } else {
    T number{};
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    return error == std::errc{} && stop == end ? std::optional(number) : std::nullopt;
  }
}

}  // namespace mpt
