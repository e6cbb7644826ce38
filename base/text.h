// SPDX-License-Identifier: Apache-2.0
#pragma once

// Text from outside: names and messages of files, other programs and other processes. A terminal executes
// control characters in it, and a line end leaves a comment of an exported script.

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

}  // namespace mpt
