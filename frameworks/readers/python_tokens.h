// SPDX-License-Identifier: Apache-2.0
#pragma once

// The tokens of a Python file, by logical lines.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mpt::frameworks {

enum class TokenKind { name, number, text, sign };

struct PythonToken {
  TokenKind kind;
  std::string text;

  bool is(std::string_view sign) const { return kind == TokenKind::sign && text == sign; }
  bool opens() const { return is("(") || is("[") || is("{"); }
  bool closes() const { return is(")") || is("]") || is("}"); }
};

/// A statement, or its head: physical lines joined by brackets or backslashes.
struct LogicalLine {
  int64_t number = 0, indent = 0;
  std::string source;  // its first line
  std::vector<PythonToken> tokens;
};

/// All lines of `text` that are not empty. Throws UserError with `file` and the line for texts and brackets
/// that do not end. Texts with a prefix f or b become the sign "f".
std::vector<LogicalLine> python_lines(std::string text, std::string file);

}  // namespace mpt::frameworks
