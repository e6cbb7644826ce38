// SPDX-License-Identifier: Apache-2.0
#pragma once

// Configurations that are Python: values that a file gives to names, and what its functions return. The
// expressions of python_expressions.h are understood, assignments, branches whose conditions are known, loops
// over lists, and calls of functions, those of other files beside it too. Nothing else is run. What is not
// understood is listed.

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/values.h"
#include "frameworks/readers/python_tokens.h"

namespace mpt::frameworks {

/// A call is an object of its keywords, with its function's name under kCallKey and a list of what has no
/// keyword under kArgumentsKey; what a method is called of stands under kOfKey. A name that the file gives no
/// value is {kNameKey: name}.
inline constexpr const char* kCallKey = "()";
inline constexpr const char* kArgumentsKey = "*";
inline constexpr const char* kOfKey = ".";
inline constexpr const char* kNameKey = "$";

struct PythonUnread {
  std::string argument;  // its keyword; empty for a whole statement
  std::string text;      // "line 12: with ..."
};

struct PythonFunction {  // NOLINT(bugprone-exception-escape): moving Json does not throw
  std::string name;
  std::string returns;  // "Trainer.Config" of "-> Trainer.Config"; may be empty
  Json result;          // of a call without arguments; null where it is not understood
  Json names;           // values of its own names at its end
  std::vector<PythonUnread> unread;
};

struct PythonFile {
  Json values = Json::object();                // of names of the module
  std::map<std::string, std::string> imports;  // module of a name
  std::vector<PythonFunction> functions;       // in order
};

/// What is known of a member of something that a call makes elsewhere.
using PythonFacts = std::function<std::optional<Json>(const Json& made, const std::string& member)>;

/// Throws UserError where brackets or texts do not end, or values grow beyond bounds. Modules that the file
/// takes functions from are read where they lie below one of its folders. With `only`, no other function has
/// a result. Calls of the function `kept` stay calls.
PythonFile read_python(const std::filesystem::path& file, const std::string& only = "",
                       const PythonFacts& facts = nullptr, const std::string& kept = "");
PythonFile python_file(const std::string& text, WorkBudget& budget);

/// Of a call, what has no keyword and comes first; else null.
Json first_argument(const Json& call);

/// JSON as a Python literal.
std::string python_text(const Json& value);

}  // namespace mpt::frameworks
