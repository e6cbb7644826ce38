// SPDX-License-Identifier: Apache-2.0
#pragma once

// Recipes: the files that say how a training runs, in any form that mpt-plan reads.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/plan_request.h"
#include "frameworks/import.h"

namespace mpt::planner {

struct Recipe {
  std::filesystem::path file;
  std::string part;       // its name in a file that holds several
  std::string framework;  // whose importer reads it; "plan" and "request" for this program's own files

  /// "folder/file.py#part".
  std::string name() const;
};

/// The recipes that a file holds: none in most files. Throws UserError where the file cannot be read.
std::vector<Recipe> recipes_in(const std::filesystem::path& file);

struct RecipeFiles {
  std::vector<Recipe> recipes;
  std::vector<std::filesystem::path> others;  // files without a recipe
};
/// Recipes of files and of all files below folders, each once, in the order of their names. Hidden files
/// and links below a folder are left out. Throws UserError for a path that is not there.
RecipeFiles find_recipes(const std::vector<std::filesystem::path>& paths);

/// The recipes of `paths` in another state of their tree, by their names in `paths`. `base` is the top of
/// another work tree of git: each path has the same place in both. A `base` without .git is the one path
/// itself. Starts no program. Throws UserError where `base` is no folder.
std::map<std::string, Recipe> recipes_of_base(const std::vector<std::filesystem::path>& paths,
                                              const std::string& base);

/// A recipe as a request to estimate, and what a request has no place for.
struct RecipeRequest {
  PlanRequest request;
  int64_t micro_batch_group = 0;   // as frameworks::Imported has it
  bool takes_all = false;          // its data-parallel degree follows from the number of GPUs
  bool own_file = false;           // a file of the framework's own, which has its model
  bool open_length = false;        // neither it nor `asked` says how long sequences are
  std::vector<std::string> notes;  // of the importer
};
/// A recipe on the cluster of `asked`, whose other fields replace the recipe's. Throws UserError where it
/// cannot be read.
RecipeRequest read_recipe(const Recipe& recipe, const PlanRequest& asked);

/// The request to estimate what `file` says of a run, read by the framework `importer`; what the file leaves
/// open follows from `asked`, whose cluster must be named. Throws UserError.
PlanRequest imported_request(frameworks::Imported imported, const PlanRequest& asked, const std::string& file,
                             const std::string& importer);

}  // namespace mpt::planner
