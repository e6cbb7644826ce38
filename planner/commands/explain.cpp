// SPDX-License-Identifier: Apache-2.0

// mpt-plan explain: prints a plan's reasons again, and why another kind of layout was not chosen.

#include <CLI/CLI.hpp>
#include <memory>

#include "core/bound_words.h"
#include "planner/answer/known_plan.h"
#include "planner/commands/commands.h"
#include "planner/explain/details.h"
#include "planner/explain/operators.h"

namespace mpt::planner {
namespace {

struct ExplainOptions {
  std::string plan, profile, kernels, why_not;
  bool operators = false;
  CostOptions cost;
};

void run(const ExplainOptions& o) {
  const KnownPlan known{load_plan(o.plan), o.plan, o.profile, o.kernels};
  const Plan& plan = known.plan;
  if (o.why_not.empty() && !o.operators) {
    fmt::print("{}{}", planner::explain(plan), describe_cost(o.cost, plan));
    return;
  }
  const auto resolved =
      problem_of(known, o.why_not.empty() ? SearchBounds{} : parse_bounds(o.why_not, "--why-not"));
  print_notes(resolved->notes);
  if (plan.corrected) print_notes({"All times and memory are as predicted, without the observed runs"});
  fmt::print("The plan is {}\n", describe_prediction(plan));
  if (o.operators)
    fmt::print("\n{}\n{}", describe_operators(resolved->problem, plan.layout), describe_traffic(plan));
  if (o.why_not.empty()) return;
  fmt::print("{}{}", o.operators ? "\n" : "", why_not(known, *resolved, o.why_not));
}

}  // namespace

std::function<int()> add_explain(CLI::App& app) {
  CLI::App* command = app.add_subcommand("explain", "Why a plan is what it is, and why not another layout");
  auto o = std::make_shared<ExplainOptions>();
  declare_known(*command, o->plan, o->profile, o->kernels);
#include "generated/ExplainOptions.inc"
  declare_cost(*command, o->cost);
  return done_by([o] { run(*o); });
}

}  // namespace mpt::planner
