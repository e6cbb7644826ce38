// SPDX-License-Identifier: Apache-2.0
#pragma once

// Expressions of Python: numbers, texts, lists, tuples, dictionaries, comparisons, sums and products of
// integers, texts and lists, and calls. A scope gives names and calls their values.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/values.h"
#include "frameworks/readers/python_tokens.h"

namespace mpt::frameworks {

/// A call is an object of its keyword arguments. Its function's name is under kCallKey, and the list of
/// positional arguments under kArgumentsKey. A method's object is under kOfKey. A name without a value in the
/// file is {kNameKey: name}.
inline constexpr const char* kCallKey = "()";
inline constexpr const char* kArgumentsKey = "*";
inline constexpr const char* kOfKey = ".";
inline constexpr const char* kNameKey = "$";

inline constexpr int kDeepestPython = 64;
inline constexpr int64_t kMostRepeated = 100'000;  // items of a list that is repeated

// Thrown for any other expression.
struct NotUnderstood {};

// Arguments that are names, by keyword or by number.
using ArgumentNames = std::map<std::string, std::string>;

class PythonScope {
 public:
  PythonScope() = default;
  PythonScope(const PythonScope&) = delete;
  PythonScope& operator=(const PythonScope&) = delete;
  virtual ~PythonScope() = default;

  /// A copy of the value of "a.b"; nothing for unknown names.
  virtual std::optional<Json> value(const std::string& path) = 0;
  /// Nothing for an unknown function, or one that does not take the call.
  virtual std::optional<Json> call(const std::string& function, const Json& call, const ArgumentNames& names,
                                   int depth) = 0;
  /// Gives a variable its next value.
  virtual void set(const std::string& name, const Json& value) = 0;
};

/// The expression in tokens from `at` up to `end`. `unread` gets the keywords of arguments that are not
/// understood. Throws NotUnderstood. `depth` is the nesting so far.
Json python_expression(const std::vector<PythonToken>& tokens, size_t at, size_t end, PythonScope& scope,
                       int depth, WorkBudget& budget, std::vector<std::string>& unread);

/// The first positional argument of a call; else null.
Json first_argument(const Json& call);

/// JSON as a Python literal.
std::string python_text(const Json& value);

/// Python's truth of a value; nothing for an unknown value.
std::optional<bool> python_truth(const Json& value);

/// Python's own functions; nothing for others, and for unknown values.
std::optional<Json> python_built_in(const std::string& function, const Json& call);

}  // namespace mpt::frameworks
