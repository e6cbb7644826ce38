// SPDX-License-Identifier: Apache-2.0

// mpt-plan explain: a plan's reasons again, and why some other kind of layout is not the plan.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "core/bound_words.h"
#include "planner/commands/commands.h"
#include "planner/explain/explain.h"
#include "planner/explain/operators.h"
#include "planner/explain/why_not.h"

namespace mpt::planner {
namespace {

struct ExplainOptions {
  std::string plan, profile, kernels, why_not;
  bool operators = false;
  CostOptions cost;
};

// The file that the plan's prices came from, by its option; null where the catalog has them.
const char* priced_by(const Plan& plan) {
  return plan.cost.source == "profile"       ? "--profile"
         : plan.cost.source == "own kernels" ? "--kernels"
                                             : nullptr;
}

// The problem that the plan answers, priced as it was.
std::unique_ptr<Resolved> problem_of(const Plan& plan, const ExplainOptions& o) {
  const char* const option = priced_by(plan);
  const auto refuse = [&](const std::string& found) {
    throw UserError(Problem{
        option, found, fmt::format("the file that {} was priced with (digest {})", o.plan, plan.cost.digest),
        "its times are needed to price other layouts"});
  };
  if (option != nullptr && (plan.cost.source == "profile" ? o.profile : o.kernels).empty()) refuse("missing");
  PlanRequest request = request_of(plan);
  request.profile = o.profile;
  request.kernels = o.kernels;
  request.memory = std::to_string(plan.memory_limit_bytes) + "B";
  if (plan.cluster.mixed()) {  // each kind of GPU has a limit of its own
    request.memory = plan.request.memory;
    request.memory_margin = plan.request.memory_margin;
  }
  request.gpus = plan.layout.ranks();
  request.bounds = o.why_not.empty() ? SearchBounds{} : parse_bounds(o.why_not, "--why-not");
  auto resolved = resolve_and_tell(request);
  const CostOrigin origin = resolved->cost->origin();
  if (option != nullptr && origin.digest != plan.cost.digest) refuse("another file");
  if (option == nullptr && !(o.profile + o.kernels).empty()) {
    throw UserError(Problem{o.profile.empty() ? "--kernels" : "--profile", "given",
                            fmt::format("none: {} was priced by the catalog", o.plan), "leave it out"});
  }
  return resolved;
}

// The same problem on links that are faster; nothing where the prices are a file's.
std::unique_ptr<Resolved> on_faster_links(Plan plan, const ExplainOptions& o) {
  if (priced_by(plan) != nullptr) return nullptr;
  for (LinkLevel& level : plan.cluster.levels) level.bandwidth_bytes_per_s *= kFasterLinks;
  for (DeviceGroup& group : plan.cluster.groups) {
    for (LinkLevel& level : group.levels) level.bandwidth_bytes_per_s *= kFasterLinks;
  }
  return problem_of(plan, o);
}

Candidate chosen(const SearchProblem& problem, const Plan& plan) {
  Candidate c{estimate(problem, plan.layout), {}};
  c.evaluation = evaluate_regardless(problem, c.estimate);
  return c;
}

// Each line at its own depth.
std::string wrapped_lines(const std::string& text) {
  std::string all;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const size_t depth = std::min(line.find_first_not_of(' '), line.size());
    all += wrapped(line.substr(depth), line.substr(0, depth));
    begin = end + 1;
  }
  return all;
}

void run(const ExplainOptions& o) {
  const Plan plan = load_plan(o.plan);
  if (o.why_not.empty() && !o.operators) {
    fmt::print("{}{}", planner::explain(plan), describe_cost(o.cost, plan));
    return;
  }
  const auto resolved = problem_of(plan, o);
  const SearchProblem& problem = resolved->problem;
  fmt::print("The plan is {}\n", describe_prediction(plan));
  if (o.operators) fmt::print("\n{}", describe_operators(problem, plan.layout));
  if (o.why_not.empty()) return;
  const auto faster = on_faster_links(plan, o);
  const Question question{plan, problem, plan.request.bounds, faster ? &faster->problem : nullptr};
  fmt::print("{}Why not {}?\n{}", o.operators ? "\n" : "", o.why_not,
             wrapped_lines(why_not(question, chosen(problem, plan))));
}

}  // namespace

std::function<int()> add_explain(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "Why a plan is what it is, and why not another layout");
  auto o = std::make_shared<ExplainOptions>();
  command->add_option("plan", o->plan, "Plan file")->required();
  command
      ->add_option("--why-not", o->why_not,
                   "Compare with another kind of layout, such as tp=8,pp=4 or schedule=gpipe (default: none)")
      ->type_name("LAYOUT");
  command->add_flag("--operators", o->operators,
                    "What a forward and a backward are made of: operators, their speed, and collectives");
  command->add_option("--profile", o->profile, "The profile that the plan was made with (default: none)")
      ->type_name("FILE");
  command->add_option("--kernels", o->kernels, "The kernel times that the plan was made with (default: none)")
      ->type_name("FILE");
  declare_cost(*command, o->cost);
  command->footer(
      "Examples:\n  mpt-plan explain plan.json\n  mpt-plan explain plan.json --why-not tp=8,pp=4");
  return [o] {
    run(*o);
    return kExitOk;
  };
}

}  // namespace mpt::planner
