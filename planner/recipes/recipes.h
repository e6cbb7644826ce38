// SPDX-License-Identifier: Apache-2.0
#pragma once

// Recipes: files that describe a training run, in any form that mpt-plan reads.

#include <filesystem>
#include <string>
#include <vector>

#include "core/plan_request.h"
#include "frameworks/import.h"

namespace mpt::planner {

struct Recipe {
  std::filesystem::path file;
  std::string part;               // its name in a file with several recipes
  std::string framework;          // framework of its importer; "plan" and "request": files of this program
  std::optional<Problem> unread;  // why the recipes of the file are not known

  /// "folder/file.py#part".
  std::string name() const;
};

/// The recipes in a file: none in most files. Throws UserError if the file cannot be read.
std::vector<Recipe> recipes_in(const std::filesystem::path& file);

/// A file that may hold recipes, and the name for it: in a base, that of the same file in the checked tree.
struct RecipeFile {
  std::filesystem::path file, name;
};
/// The files among `paths` and below folders, each once, in the order of their names. Hidden files
/// below a folder are left out, and links but for those of a recipe's name that lead out of it. Throws
/// UserError for a path that does not exist.
std::vector<RecipeFile> recipe_files(const std::vector<std::filesystem::path>& paths);

/// The files of `paths` in another state of their tree. `base` is the root of another work tree of git: each
/// path has the same place in both. A `base` without .git is the path itself. Starts no program. Throws
/// UserError if `base` is not a folder.
std::vector<RecipeFile> files_of_base(const std::vector<std::filesystem::path>& all, const std::string& base);

/// From now on no reader leaves the folders (base/files.h). Files that `asked` names are the user's own: they
/// are read first, and set its model and cluster. Throws UserError.
void keep_below(const std::vector<std::filesystem::path>& folders, PlanRequest& asked);

/// A recipe as a request to estimate, and properties that a request cannot hold.
struct RecipeRequest {
  PlanRequest request;
  int64_t micro_batch_group = 0;   // as in frameworks::Imported
  bool takes_all = false;          // its data-parallel degree follows from the number of GPUs
  bool own_file = false;           // a file of the framework, which has its model
  bool open_length = false;        // neither it nor `asked` gives the length of sequences
  std::vector<std::string> notes;  // of the importer
};
/// A recipe on the cluster of `asked`; other fields of `asked` replace those of the recipe. Throws UserError
/// if it cannot be read.
RecipeRequest read_recipe(const Recipe& recipe, const PlanRequest& asked);

/// The request to estimate the run in `file`, read by the framework `importer`. Values that the file lacks
/// follow from `asked`, which must name a cluster. Throws UserError.
PlanRequest imported_request(frameworks::Imported imported, const PlanRequest& asked, const std::string& file,
                             const std::string& importer);

}  // namespace mpt::planner
