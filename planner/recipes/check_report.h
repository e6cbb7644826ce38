// SPDX-License-Identifier: Apache-2.0
#pragma once

// The results of a check, for a terminal and for programs of continuous integration.

#include <filesystem>
#include <string>
#include <vector>

#include "planner/recipes/check.h"

namespace mpt::planner {

struct CheckReport {
  std::string cluster, base;  // base: empty without one
  std::vector<CheckedRecipe> recipes;
  std::vector<std::string> removed;           // recipes that only the base has
  std::vector<std::filesystem::path> others;  // files without a recipe
};

/// A table, then the reasons why recipes are refused. `verbose`: also notes, and the files without a recipe.
std::string check_screen(const CheckReport& report, bool verbose);
/// One test case for each recipe, in the form that most servers read.
std::string junit_text(const CheckReport& report);
/// SARIF 2.1.0: a result for each recipe that is refused, not read or slower than in the base.
std::string sarif_text(const CheckReport& report);
std::string check_json_text(const CheckReport& report);

}  // namespace mpt::planner
