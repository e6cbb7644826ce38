// SPDX-License-Identifier: Apache-2.0
#pragma once

// Recipes judged without a search: whether their framework runs them, whether they fit, and how long a step
// takes.

#include <cstdint>
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
  std::string recipe, framework;
  std::filesystem::path file;  // the file with the recipe
  RecipeVerdict verdict = RecipeVerdict::not_read;
  std::string reason, remedy;  // empty if the verdict is fits
  std::string model, layout;   // empty if it is not read
  int64_t gpus = 0;
  double parameters = 0.0;
  double step_time_s = 0.0, idle_share = 0.0;  // 0 if it is illegal or not read
  int64_t peak_bytes = 0, limit_bytes = 0;     // the same
  std::string change;                          // against a base; empty: none, or no base
  std::vector<std::string> notes;

  static void describe(auto& v) {
    using T = CheckedRecipe;
    v.field("recipe", &T::recipe, "file, with # and a name where it holds several", long_text());
    v.field("framework", &T::framework, "whose recipe it is");
    v.field("verdict", &T::verdict, "fits, illegal, does_not_fit, cannot_judge or not_read");
    v.field("reason", &T::reason, "why not", long_text());
    v.field("remedy", &T::remedy, "what helps", long_text());
    v.field("model", &T::model, "name of the model", long_text());
    v.field("layout", &T::layout, "short form of the layout", long_text());
    v.field("gpus", &T::gpus, "GPUs of the layout", at_least(0));
    v.field("parameters", &T::parameters, "of the model", at_least(0));
    v.field("step_time_s", &T::step_time_s, "seconds of a step", at_least(0));
    v.field("idle_share", &T::idle_share, "of the step on the GPUs' average", between(0, 1));
    v.field("peak_bytes", &T::peak_bytes, "of the fullest GPU", at_least(0));
    v.field("limit_bytes", &T::limit_bytes, "that a GPU may use", at_least(0));
    v.field("change", &T::change, "against the base", long_text());
    v.field("notes", &T::notes, "what was not understood or is assumed", long_text());
  }
};

/// Text of a verdict: "does not fit" for does_not_fit.
std::string words_of(RecipeVerdict verdict);

/// Judges a recipe that has been read. Its cluster must be known.
CheckedRecipe check_recipe(const RecipeRequest& recipe);

/// Judges recipes on the cluster of `asked`, in their order, on several threads. Equal requests are judged
/// once. Throws UserError if `asked` itself is wrong.
std::vector<CheckedRecipe> check_recipes(const std::vector<Recipe>& recipes, const PlanRequest& asked);

/// Sets `change` in `now`: the changes from `before`, by the recipes' names.
void compare_with_base(std::vector<CheckedRecipe>& now, const std::vector<CheckedRecipe>& before);

/// Whether a recipe is illegal or does not fit; whether a recipe could not be read.
bool any_refused(const std::vector<CheckedRecipe>& checked);
bool any_unread(const std::vector<CheckedRecipe>& checked);

}  // namespace mpt::planner
