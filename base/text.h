// SPDX-License-Identifier: Apache-2.0
#pragma once

// Text from outside: names and messages of files, other programs and other processes. A terminal executes
// control characters in it, and a line end leaves a comment of an exported script.

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/ranges.h"

namespace mpt {

/// Longest name of a model, cluster, GPU, link or the like.
inline constexpr size_t kMostNameBytes = 200;

/// One line that is safe to print. Control characters, line ends, marks of writing direction, and bytes that
/// are not UTF-8 become escapes such as \x1b or \u2028.
std::string printable(std::string_view text);
/// The same for text of several lines: line feeds stay.
std::string printable_lines(std::string_view text);
/// Whether printable() changes nothing.
bool is_printable(std::string_view text);
/// At most `bytes` of it, never a part of a UTF-8 character.
std::string_view cut_text(std::string_view text, size_t bytes);

/// What stands between the `letter`s, empty parts too.
std::vector<std::string> split_at(std::string_view text, char letter);
/// With small letters in place of A to Z.
std::string lower_case(std::string text);
/// With another letter in each place of `letter`.
std::string replaced(std::string text, char letter, char other);

/// The number that a text begins with, and its characters; 0 of them: it begins with none that a double
/// holds.
struct LeadingNumber {
  double value = 0.0;
  size_t length = 0;
};
/// Reads as std::from_chars does, which not every library has for doubles, but for infinity and NaN. The
/// locale does not matter.
LeadingNumber leading_number(std::string_view text);
/// The whole text as a number; nothing where it is none, or none that T holds.
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
