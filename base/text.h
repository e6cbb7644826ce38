// SPDX-License-Identifier: Apache-2.0
#pragma once

// Text from outside: names and messages of files, other programs and other processes. A terminal executes
// control characters in it, and a line end leaves a comment of an exported script.

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

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

/// With small letters in place of A to Z.
std::string lower_case(std::string text);
/// With another letter in each place of `letter`.
std::string replaced(std::string text, char letter, char other);

/// The number that the whole text is, as JSON has numbers; nothing for any other text.
template <class T>
std::optional<T> number_of(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace mpt
