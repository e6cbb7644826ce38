// SPDX-License-Identifier: Apache-2.0
#pragma once

// Configurations in Python: the values that a file gives to names, and the results of its functions.
// Understood are the expressions of python_expressions.h, assignments, branches with known conditions, loops
// over lists, and calls of functions in this file and in files that it imports. Nothing else is run. The rest
// is listed.

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "frameworks/readers/python_expressions.h"

namespace mpt::frameworks {

struct PythonUnread {
  std::string argument;  // its keyword; empty for a whole statement
  std::string text;      // "line 12: with ..."
};

struct PythonFunction {  // NOLINT(bugprone-exception-escape): moving Json does not throw
  std::string name;
  std::string returns;  // of a call without arguments; null if not understood
  Json result;          // of a call without arguments; null where it is not understood
  Json names;           // its local variables at its end
  std::vector<PythonUnread> unread;
};

struct PythonFile {
  Json values = Json::object();                // of names of the module
  std::map<std::string, std::string> imports;  // module of a name
  std::vector<PythonFunction> functions;       // in order
};

/// Known values of members of an object that another module's call makes.
using PythonFacts = std::function<std::optional<Json>(const Json& made, const std::string& member)>;

/// Throws UserError for brackets or texts that do not end, and for values beyond bounds. Modules that the
/// file imports functions from are read if they are below one of its parent folders. With `only`, no other
/// function has a result. Calls of the function `kept` stay calls.
PythonFile read_python(const std::filesystem::path& file, const std::string& only = "",
                       const PythonFacts& facts = nullptr, const std::string& kept = "");
PythonFile python_file(const std::string& text, WorkBudget& budget);

}  // namespace mpt::frameworks
