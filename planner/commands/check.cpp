// SPDX-License-Identifier: Apache-2.0

// mpt-plan check: whether every recipe of a folder is legal for its framework and fits, and its cost.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <set>

#include "base/command_line.h"
#include "base/error.h"
#include "base/json.h"
#include "planner/commands/commands.h"
#include "planner/recipes/check_report.h"

namespace mpt::planner {
namespace {

struct CheckOptions {
  std::vector<std::string> paths;
  std::string base, junit, sarif, json;
  bool verbose = false, allow_unread = false;
  PlanRequest request;
};

std::vector<std::filesystem::path> paths_of(const CheckOptions& o) {
  return {o.paths.begin(), o.paths.end()};
}

// The base's recipes follow the current ones in one list, so that equal ones are judged once.
CheckReport report_of(const CheckOptions& o) {
  RecipeFiles files = find_recipes(paths_of(o));
  const auto now = std::ptrdiff_t(files.recipes.size());
  std::map<std::string, Recipe> base;
  if (!o.base.empty()) base = recipes_of_base(paths_of(o), o.base);
  for (const auto& [name, recipe] : base) files.recipes.push_back(recipe);
  std::vector<CheckedRecipe> all = check_recipes(files.recipes, o.request);
  CheckReport report{o.request.cluster.name, o.base, {}, {}, std::move(files.others)};
  report.recipes.assign(all.begin(), all.begin() + now);
  if (o.base.empty()) return report;
  std::set<std::string> names;
  for (const CheckedRecipe& checked : report.recipes) names.insert(checked.recipe);
  std::vector<CheckedRecipe> before(all.begin() + now, all.end());
  auto checked = before.begin();
  for (const auto& [name, recipe] : base) {
    checked++->recipe = name;
    if (names.count(name) == 0) report.removed.push_back(name);
  }
  compare_with_base(report.recipes, before);
  return report;
}

int run_check(const CheckOptions& o) {
  if (o.request.cluster.empty())
    throw UserError(
        Problem{"--cluster", "missing", "where the recipes run, such as dgx-h100:8", "see --help"});
  const CheckReport report = report_of(o);
  if (!o.junit.empty()) write_file_atomically(o.junit, junit_text(report));
  if (!o.sarif.empty()) write_file_atomically(o.sarif, sarif_text(report));
  if (!o.json.empty()) write_file_atomically(o.json, check_json_text(report));
  fmt::print("{}", check_screen(report, o.verbose));
  if (any_refused(report.recipes)) return kExitRunFailed;
  if (report.recipes.empty()) return kExitUserError;  // files that were not read are not confirmed
  return any_unread(report.recipes) && !o.allow_unread ? kExitUserError : kExitOk;
}

}  // namespace

std::function<int()> add_check(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("check", "Judge every recipe of a folder: legal, fits, costs so much");
  auto o = std::make_shared<CheckOptions>();
  command->add_option("paths", o->paths, "Recipes, and folders with recipes, in any form that import reads")
      ->required()
      ->type_name("PATH");
  command
      ->add_option("--base", o->base,
                   "Folder to compare with: the same tree in another state (default: none)")
      ->type_name("FOLDER");
  command->add_flag("--allow-unread", o->allow_unread, "Recipes that cannot be read are no failure")
      ->group("Output");
  add_output(*command, "--junit", o->junit, "Write the verdicts as JUnit XML")->group("Output");
  add_output(*command, "--sarif", o->sarif, "Write what is wrong as SARIF 2.1.0")->group("Output");
  add_output(*command, "--json", o->json, "Write all figures as JSON")->group("Output");
  command->add_flag("-v,--verbose", o->verbose, "Print notes, and the files that hold no recipe")
      ->group("Output");
  declare_problem(*command, o->request);
  command->footer(
      "Exit codes: 0 all recipes fit; 1 one is illegal or does not fit; 2 one was not read, or wrong "
      "input.\n"
      "Examples:\n  mpt-plan check recipes/ --cluster dgx-h100:8\n"
      "  mpt-plan check recipes/ --cluster dgx-h100:8 --base ../base --junit check.xml");
  return [o] { return run_check(*o); };
}

}  // namespace mpt::planner
