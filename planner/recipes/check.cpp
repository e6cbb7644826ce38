// SPDX-License-Identifier: Apache-2.0
#include "planner/recipes/check.h"

#include <tuple>

#include "base/threads.h"
#include "core/layout.h"
#include "frameworks/supports/supports.h"
#include "models/parameter_count.h"
#include "planner/api.h"
#include "planner/explain/confidence.h"
#include "planner/explain/screen.h"
#include "planner/request/resolve_parts.h"
#include "profiler/hardware/catalog.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

// A smaller change of step time or memory is not reported.
constexpr double kSameShare = 0.005;
// Tokens of a sequence. Shorter ones are not tried, since few data sets are shorter.
constexpr int64_t kShortestSequence = 128;

// One sentence without its remedy, and without the file, which the output shows before it.
std::string sentence(const Problem& problem, const std::string& file) {
  std::string text = problem.where;
  if (!file.empty() && text.starts_with(file)) text.erase(0, file.size());
  if (text.starts_with(" at ")) text.erase(0, 4);
  if (text.empty()) return problem.found + (problem.expected.empty() ? "" : ", expected " + problem.expected);
  if (!problem.found.empty()) text += ": " + problem.found;
  if (!problem.expected.empty()) text += ", expected " + problem.expected;
  return text;
}

void refuse(CheckedRecipe& checked, RecipeVerdict verdict, const UserError& error) {
  checked.verdict = verdict;
  checked.reason = sentence(error.problems().front(), checked.file.string());
  checked.remedy = error.problems().front().remedy;
}

std::optional<Rejection> refusal_by_framework(const SearchProblem& problem, const Layout& layout,
                                              const RecipeRequest& recipe) {
  const auto bounding = bounding_framework(problem);
  if (bounding == nullptr) return std::nullopt;
  frameworks::Framework framework = *bounding;
  if (recipe.own_file) {  // its features exist, if only approximately in layouts
    framework.dialect.clear();
    framework.abilities.trains = frameworks::features_of(layout.training);
    framework.abilities.recomputes.push_back(layout.recompute);
  }
  std::erase_if(framework.abilities.combinations, [](const frameworks::CombinationRule& rule) {
    return rule.outcome == frameworks::Outcome::other_objective;
  });
  auto refusal = frameworks::supports(framework, problem.model, layout, problem.workload);
  if (!refusal || refusal->constraint != "micro-batch groups" ||
      !frameworks::takes_micro_batch_groups(layout, problem.workload, recipe.micro_batch_group))
    return refusal;
  Workload whole = problem.workload;  // to check the rules after this one
  whole.global_batch = layout.data * layout.micro_batch * layout.pipeline;
  return frameworks::supports(framework, problem.model, layout, whole);
}

// The devices that the cluster lacks, or a rule of model, batch or framework that the recipe breaks.
std::optional<std::pair<RecipeVerdict, std::string>> verdict_of(const SearchProblem& problem,
                                                                const Layout& layout,
                                                                const RecipeRequest& recipe) {
  if (layout.ranks() > problem.cluster.devices)
    return std::pair{RecipeVerdict::does_not_fit, fmt::format("it needs {} GPUs, {} has {}", layout.ranks(),
                                                              problem.cluster.name, problem.cluster.devices)};
  const int64_t replica = layout.tensor * layout.context * layout.pipeline;
  if (recipe.takes_all && problem.ranks % replica != 0)
    return std::pair{
        RecipeVerdict::illegal,
        fmt::format("{} GPUs do not divide by tensor x context x pipeline = {}", problem.ranks, replica)};
  auto r = refusal_by_framework(problem, layout, recipe);
  if (!r) r = check_layout(problem.model, layout, problem.workload);
  if (!r) return std::nullopt;
  // A framework may run these.
  const bool unplanned = r->constraint == "unplanned" || r->constraint == "not judged";
  return std::pair{unplanned ? RecipeVerdict::cannot_judge : RecipeVerdict::illegal, r->reason};
}

void set_costs(CheckedRecipe& checked, const Estimated& estimated) {
  const SearchProblem& problem = estimated.resolved->problem;
  checked.step_time_s = estimated.plan.prediction.step_time_s;
  checked.idle_share = std::clamp(estimated.plan.prediction.bubble_share, 0.0, 1.0);
  checked.peak_bytes = reports::peak_bytes(estimated.plan);
  checked.limit_bytes = problem.memory_limit_bytes;
  if (const auto rejection = estimated.lacks()) {
    checked.verdict = RecipeVerdict::does_not_fit;
    checked.reason = describe_lack(*rejection, problem.cluster);
    return;
  }
  checked.verdict = RecipeVerdict::fits;
  if (const auto risk = memory_risk(estimated.plan, published_evidence())) checked.notes.push_back(risk->why);
}

// A recipe with open sequence length fits if it fits with shorter sequences.
PlanRequest with_length_that_fits(const PlanRequest& request, const RecipeRequest& recipe,
                                  CheckedRecipe& checked) {
  if (!recipe.open_length) return request;
  PlanRequest shorter = request;
  while (shorter.sequence > kShortestSequence && estimate(shorter).candidate.evaluation.rejection)
    shorter.sequence /= 2;
  if (shorter.sequence == request.sequence || estimate(shorter).candidate.evaluation.rejection)
    return request;
  checked.notes.push_back(
      fmt::format("{} tokens do not fit: judged with sequences of {}", request.sequence, shorter.sequence));
  return shorter;
}

// Throws UserError for errors that no layout would avoid.
void judge_layout(const PlanRequest& request, const RecipeRequest& recipe, CheckedRecipe& checked) {
  const auto resolved = resolve(request);
  const SearchProblem& problem = resolved->problem;
  checked.model = problem.model.name;
  checked.framework = problem.execution.framework;
  checked.parameters = double(models::count_parameters(problem.model).total);
  checked.notes.insert(checked.notes.end(), resolved->notes.begin(), resolved->notes.end());
  Layout layout = layout_to_estimate(*resolved);
  checked.layout = layout_name(layout);
  checked.gpus = layout.ranks();
  if (const auto refusal = verdict_of(problem, layout, recipe)) {
    std::tie(checked.verdict, checked.reason) = *refusal;
    return;
  }
  set_costs(checked, estimate(with_length_that_fits(request, recipe, checked)));
}

struct ReadRecipe {
  CheckedRecipe checked;
  std::optional<RecipeRequest> request;
};

ReadRecipe read(const Recipe& recipe, const PlanRequest& asked) {
  ReadRecipe result;
  CheckedRecipe& checked = result.checked;
  checked.recipe = recipe.name();
  checked.file = recipe.file;
  checked.framework = recipe.framework;
  try {
    result.request = read_recipe(recipe, asked);
  } catch (const frameworks::FrameworkRefusal& refusal) {
    refuse(checked, RecipeVerdict::illegal, refusal);
  } catch (const frameworks::NotJudged& more) {
    refuse(checked, RecipeVerdict::cannot_judge, more);
  } catch (const UserError& error) {
    refuse(checked, RecipeVerdict::not_read, error);
  }
  return result;
}

// Indices of recipes with equal requests.
std::vector<std::vector<size_t>> equal_requests(const std::vector<ReadRecipe>& recipes) {
  std::map<std::tuple<std::string, int64_t, bool, bool, bool>, std::vector<size_t>> by_request;
  for (size_t i = 0; i < recipes.size(); ++i)
    if (const auto& request = recipes[i].request)
      by_request[{request_to_text(request->request), request->micro_batch_group, request->takes_all,
                  request->own_file, request->open_length}]
          .push_back(i);
  return mapped<std::vector<size_t>>(by_request, [](auto& group) { return std::move(group.second); });
}

void set_verdict(const CheckedRecipe& judged, ReadRecipe& recipe) {
  CheckedRecipe own = judged;
  own.recipe = recipe.checked.recipe;
  own.file = recipe.checked.file;
  if (own.framework.empty()) own.framework = recipe.checked.framework;
  own.notes.insert(own.notes.begin(), recipe.request->notes.begin(), recipe.request->notes.end());
  recipe.checked = std::move(own);
}

// Whether a recipe in the same folder names the file: accelerate's file, or the YAML that a script starts.
bool is_part(const CheckedRecipe& part, const CheckedRecipe& whole) {
  const bool started = whole.file.extension() == ".sh" && part.file.extension() == ".yaml";
  return (started || part.verdict == RecipeVerdict::not_read) && part.file.extension() != ".sh" &&
         whole.verdict != RecipeVerdict::not_read && part.file != whole.file &&
         part.file.parent_path() == whole.file.parent_path() &&
         read_file(whole.file).find(part.file.filename().string()) != std::string::npos;
}

std::string change_of(const CheckedRecipe& now, const CheckedRecipe& before) {
  if (now.verdict != before.verdict) return "now " + words_of(now.verdict);
  std::string text;
  const auto add = [&](double from, double to, const char* what) {
    if (from <= 0.0 || std::abs(to / from - 1.0) < kSameShare) return;
    text += fmt::format("{}{:+.1f}% {}", text.empty() ? "" : ", ", 100.0 * (to / from - 1.0), what);
  };
  add(before.step_time_s, now.step_time_s, "step time");
  add(double(before.peak_bytes), double(now.peak_bytes), "memory");
  if (now.layout != before.layout) text += fmt::format("{}was {}", text.empty() ? "" : ", ", before.layout);
  return text;
}

}  // namespace

std::string words_of(RecipeVerdict verdict) { return replaced(enum_name(verdict), '_', ' '); }

CheckedRecipe check_recipe(const RecipeRequest& recipe) {
  CheckedRecipe checked;
  PlanRequest asked = recipe.request;
  asked.beyond_framework = true;  // supports() is called here and gives the reason
  try {
    judge_layout(asked, recipe, checked);
  } catch (const UserError& error) {
    refuse(checked, RecipeVerdict::illegal, error);
  }
  return checked;
}

std::vector<CheckedRecipe> check_recipes(const std::vector<Recipe>& recipes, const PlanRequest& asked) {
  PlanRequest on = asked;
  on.cluster.value =
      asked.cluster.value ? asked.cluster.value : profiler::load_cluster(asked.cluster.name, {}, asked.gpus);
  const auto threads = size_t(asked.threads > 0 ? asked.threads : default_threads());
  std::vector<ReadRecipe> read_recipes(recipes.size());
  on_threads(recipes.size(), threads, [&](size_t i, size_t) { read_recipes[i] = read(recipes[i], on); });
  const std::vector<std::vector<size_t>> groups = equal_requests(read_recipes);
  on_threads(groups.size(), threads, [&](size_t g, size_t) {
    const CheckedRecipe judged = check_recipe(*read_recipes[groups[g].front()].request);
    for (const size_t i : groups[g]) set_verdict(judged, read_recipes[i]);
  });
  return mapped<CheckedRecipe>(read_recipes, [](ReadRecipe& one) { return std::move(one.checked); });
}

std::vector<std::vector<CheckedRecipe>> check_files(const std::vector<RecipeFile>& files,
                                                    const PlanRequest& asked) {
  std::vector<Recipe> recipes;
  std::vector<size_t> file_of;
  for (size_t i = 0; i < files.size(); ++i) {
    try {
      for (Recipe& recipe : recipes_in(files[i].file)) recipes.push_back(std::move(recipe));
    } catch (const UserError& error) {
      recipes.push_back({files[i].file, "", "", error.problems().front()});
    }
    file_of.resize(recipes.size(), i);
  }
  const std::vector<CheckedRecipe> all = check_recipes(recipes, asked);
  std::vector<CheckedRecipe> checked = all;
  std::vector<std::vector<CheckedRecipe>> result(files.size());
  for (size_t i = 0; i < recipes.size(); ++i) {
    recipes[i].file = files[file_of[i]].name;
    if (any_of(all, [&](const CheckedRecipe& whole) { return is_part(all[i], whole); })) continue;
    checked[i].recipe = recipes[i].name();
    result[file_of[i]].push_back(std::move(checked[i]));
  }
  return result;
}

void compare_with_base(std::vector<CheckedRecipe>& now, const std::vector<CheckedRecipe>& before) {
  std::map<std::string, const CheckedRecipe*> base;
  for (const CheckedRecipe& checked : before) base[checked.recipe] = &checked;
  for (CheckedRecipe& checked : now) {
    const auto found = base.find(checked.recipe);
    checked.change = found == base.end() ? "new" : change_of(checked, *found->second);
  }
}

bool any_refused(const std::vector<CheckedRecipe>& checked) {
  return any_of(checked, [](const CheckedRecipe& c) {
    return c.verdict == RecipeVerdict::illegal || c.verdict == RecipeVerdict::does_not_fit;
  });
}

bool any_unread(const std::vector<CheckedRecipe>& checked) {
  return any_of(checked, [](const CheckedRecipe& c) { return c.verdict >= RecipeVerdict::cannot_judge; });
}

}  // namespace mpt::planner
