// SPDX-License-Identifier: Apache-2.0
#pragma once

// Recipes judged without a search: whether their framework runs them, whether they fit, and how long a step
// takes.

#include <string>
#include <vector>

#include "base/fields.h"
#include "planner/recipes/recipes.h"

namespace mpt {

/// cannot_judge: the recipe trains more than plans describe. not_read: it is invalid, is not a training of
/// this kind, or has parts that are not understood.
enum class RecipeVerdict { fits, illegal, does_not_fit, cannot_judge, not_read };

}  // namespace mpt

namespace mpt::planner {

struct CheckedRecipe {
  std::filesystem::path file;  // the file with the recipe
#include "generated/CheckedRecipe.inc"
};

/// Text of a verdict: "does not fit" for does_not_fit.
std::string words_of(RecipeVerdict verdict);

/// Judges a recipe that has been read. Its cluster must be known.
CheckedRecipe check_recipe(const RecipeRequest& recipe);

/// Judges recipes on the cluster of `asked`, in their order, on several threads. Equal requests are judged
/// once. Throws UserError if `asked` itself is wrong.
std::vector<CheckedRecipe> check_recipes(const std::vector<Recipe>& recipes, const PlanRequest& asked);

/// The same for all recipes of files, under their files' names; none for a file without one.
std::vector<std::vector<CheckedRecipe>> check_files(const std::vector<RecipeFile>& files,
                                                    const PlanRequest& asked);

/// Sets `change` in `now`: the changes from `before`, by the recipes' names.
void compare_with_base(std::vector<CheckedRecipe>& now, const std::vector<CheckedRecipe>& before);

/// Whether a recipe is illegal or does not fit; whether a recipe could not be read.
bool any_refused(const std::vector<CheckedRecipe>& checked);
bool any_unread(const std::vector<CheckedRecipe>& checked);

}  // namespace mpt::planner
