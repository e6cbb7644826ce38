// SPDX-License-Identifier: Apache-2.0

// mpt-plan compare: plans side by side, or the best plans of several clusters or frameworks for one model.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "planner/commands/commands.h"
#include "planner/commands/plan_table.h"

namespace mpt::planner {
namespace {

struct CompareOptions {
  std::vector<std::string> plans, clusters, frameworks;
  PlanRequest request;
  CostOptions cost;
};

std::string table_of(const std::vector<Compared>& compared, const CostOptions& cost) {
  std::vector<reports::Column> columns = plan_columns({"", reports::Align::left}, compared, cost);
  columns.push_back({"speed"});
  reports::Table table(columns);
  const Plan* const first = first_plan(compared);
  for (const Compared& c : compared) {
    std::vector<std::string> row = plan_row(c, cost);
    row.push_back(
        c.plan ? fmt::format("{:.2f}x", c.plan->prediction.tokens_per_s / first->prediction.tokens_per_s)
               : "-");
    table.add_row(std::move(row));
  }
  return table.text();
}

std::vector<Compared> from_files(const std::vector<std::string>& files) {
  std::vector<Compared> compared;
  for (const std::string& file : files) compared.push_back({file, load_plan(file), ""});
  return compared;
}

// The best plan of each cluster for each framework.
std::vector<Compared> from_searches(const CompareOptions& o) {
  const std::vector<std::string> frameworks =
      o.frameworks.empty() ? std::vector<std::string>{""} : o.frameworks;
  std::vector<std::string> names;
  std::vector<PlanRequest> requests;
  for (const std::string& cluster : o.clusters) {
    for (const std::string& framework : frameworks) {
      requests.push_back(o.request);
      requests.back().cluster = {cluster, {}};
      requests.back().framework = framework;
      names.push_back(frameworks.size() == 1   ? cluster
                      : o.clusters.size() == 1 ? framework
                                               : fmt::format("{}, {}", cluster, framework));
    }
  }
  return named(names, compare_watched(requests));
}

std::string unlike_the_first(const Plan& plan, const Plan& first, const std::string& name) {
  if (plan.model == first.model && plan.workload == first.workload &&
      plan.layout.precision == first.layout.precision)
    return "";
  return fmt::format("  note: {} is of another job: {}", name, describe_job(plan, true, true));
}

void check(const CompareOptions& o) {
  const size_t searches = o.clusters.size() * std::max<size_t>(1, o.frameworks.size());
  if (o.plans.empty() != (o.clusters.empty() && o.frameworks.empty()) && o.plans.size() + searches >= 2 &&
      (!o.plans.empty() || !o.clusters.empty()))
    return;
  throw UserError(Problem{
      "command line",
      fmt::format("{} plans, {} clusters and {} frameworks", o.plans.size(), o.clusters.size(),
                  o.frameworks.size()),
      "two or more plan files, or --model with two or more --cluster, or one --cluster with two or more "
      "--framework",
      "see --help"});
}

void run(const CompareOptions& o) {
  check(o);
  const bool files = !o.plans.empty();
  const std::vector<Compared> compared = files ? from_files(o.plans) : from_searches(o);
  const Plan* const first = first_plan(compared);
  if (first != nullptr) {
    const bool same_framework = std::all_of(compared.begin(), compared.end(), [&](const Compared& c) {
      return !c.plan || c.plan->layout.execution.framework == first->layout.execution.framework;
    });
    fmt::print("{}", describe_job(*first, true, same_framework));
  }
  fmt::print("{}{}", table_of(compared, o.cost), describe_days(compared, o.cost));
  for (const Compared& c : compared) {
    if (c.plan) fmt::print("{}", unlike_the_first(*c.plan, *first, c.name));
  }
}

}  // namespace

std::function<int()> add_compare(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "compare", "Plans side by side, or the best plans of several clusters or frameworks");
  auto o = std::make_shared<CompareOptions>();
  command->add_option("plans", o->plans, "Plan files");
  declare_problem(*command, o->request);
  const std::string framework = command->get_option("--framework")->get_description();
  const std::string framework_group = command->get_option("--framework")->get_group();
  command->remove_option(command->get_option("--cluster"));
  command->remove_option(command->get_option("--framework"));
  command
      ->add_option("--cluster", o->clusters, "Clusters, separated by commas, each searched for its best plan")
      ->delimiter(',')
      ->expected(1, 64)
      ->type_name("CLUSTERS")
      ->group("Where");
  command->add_option("--framework", o->frameworks, framework + "; several are compared")
      ->delimiter(',')
      ->expected(1, 64)
      ->type_name("NAMES")
      ->group(framework_group);
  declare_bounds(*command, o->request);
  declare_cost(*command, o->cost);
  command->footer(
      "Examples:\n  mpt-plan compare a.json b.json\n"
      "  mpt-plan compare --model llama3-70b --cluster dgx-h100:64,dgx-h100:128 --global-batch 2048 --tokens "
      "15T");
  return [o] {
    run(*o);
    return kExitOk;
  };
}

}  // namespace mpt::planner
