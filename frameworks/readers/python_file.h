// SPDX-License-Identifier: Apache-2.0
#pragma once

// Configurations that are Python: values that a file gives to names, and what its functions return. Nothing
// is run. Numbers, texts, lists, tuples, dictionaries, calls with keywords and names are understood, sums and
// products of whole numbers and lists too. Arguments that are not understood are listed.

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/values.h"
#include "frameworks/readers/python_tokens.h"

namespace mpt::frameworks {

/// A call is an object of its keywords, with its function's name under kCallKey and a list of what has no
/// keyword under kArgumentsKey; what a method is called of stands under kOfKey. A name that the file gives no
/// value is {kNameKey: name}. What stands in a branch or a loop is not understood.
inline constexpr const char* kCallKey = "()";
inline constexpr const char* kArgumentsKey = "*";
inline constexpr const char* kOfKey = ".";
inline constexpr const char* kNameKey = "$";

struct PythonUnread {
  std::string argument;  // its keyword; empty for a whole statement
  std::string text;      // "line 12: for i in ..."
};

struct PythonFunction {  // NOLINT(bugprone-exception-escape): moving Json does not throw
  std::string name;
  std::string returns;  // "Trainer.Config" of "-> Trainer.Config"; may be empty
  std::vector<std::pair<std::string, Json>> parameters;  // with their defaults
  Json result;                                           // null where nothing was understood
  std::vector<PythonUnread> unread;
};

struct PythonFile {
  Json values = Json::object();                // of names of the module
  std::map<std::string, std::string> imports;  // module of a name
  std::vector<PythonFunction> functions;       // in order
};

/// Throws UserError where brackets or texts do not end, or values grow beyond bounds.
PythonFile read_python(const std::filesystem::path& file);
PythonFile python_file(const std::string& text, WorkBudget& budget);

/// What the function returns when it is called without arguments.
Json result_of(const PythonFunction& function, WorkBudget& budget);

/// The value of the expression that begins at token `at` of a line; nothing if it is not understood. `known`
/// names have values.
std::optional<Json> python_value(const std::vector<PythonToken>& tokens, size_t at,
                                 const std::map<std::string, Json>& known, WorkBudget& budget);

/// JSON as a Python literal.
std::string python_text(const Json& value);

}  // namespace mpt::frameworks
