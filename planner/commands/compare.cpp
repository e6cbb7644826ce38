// SPDX-License-Identifier: Apache-2.0

// mpt-plan compare: plans side by side, or the best plans of several clusters for one model.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>

#include "core/error.h"
#include "core/quantity.h"
#include "planner/commands/commands.h"
#include "planner/explain/utilisation.h"
#include "planner/stoppable.h"
#include "reports/table.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

struct CompareOptions {
  std::vector<std::string> plans, clusters;
  PlanOptions problem;
};

struct Compared {
  std::string name;
  std::optional<Plan> plan;  // nothing: no layout fits
  std::string why;
};

std::string table_of(const std::vector<Compared>& compared, const CostOptions& cost) {
  const bool with_cost = !cost.tokens.empty();
  std::vector<reports::Column> columns{{"", reports::Align::left},
                                       {"layout", reports::Align::left},
                                       {"devices"},
                                       {"step time"},
                                       {"tokens/s"},
                                       {"per device"},
                                       {"of peak"},
                                       {"bubble"},
                                       {"memory"},
                                       {"speed"}};
  if (with_cost) columns.insert(columns.end(), {{"days"}, {"device-hours"}, {"price"}});
  reports::Table table(columns);
  const auto first = std::find_if(compared.begin(), compared.end(), [](const Compared& c) { return c.plan; });
  for (const auto& [name, fitting, why] : compared) {
    if (!fitting) {
      std::vector<std::string> row{name, why};
      row.resize(columns.size(), "-");
      table.add_row(std::move(row));
      continue;
    }
    const Plan& plan = *fitting;
    const double rate = plan.prediction.tokens_per_s;
    std::vector<std::string> row{name,
                                 layout_name(plan.layout),
                                 format_count(plan.layout.ranks()),
                                 format_seconds(plan.prediction.step_time_s),
                                 format_count(int64_t(rate)),
                                 format_count(int64_t(rate / double(plan.layout.ranks()))),
                                 format_percent(model_flop_utilisation(plan)),
                                 format_percent(plan.prediction.bubble_share),
                                 format_bytes(double(reports::peak_bytes(plan))),
                                 fmt::format("{:.2f}x", rate / first->plan->prediction.tokens_per_s)};
    if (with_cost) {
      const TrainingCost c = training_cost(plan, parse_count(cost.tokens, "--tokens"), cost.price);
      row.insert(row.end(), {fmt::format("{:.1f}", c.days), format_magnitude(c.device_hours),
                             cost.price > 0 ? format_magnitude(c.price) : "-"});
    }
    table.add_row(std::move(row));
  }
  return table.text();
}

std::vector<Compared> from_files(const std::vector<std::string>& files) {
  std::vector<Compared> compared;
  for (const std::string& file : files) compared.push_back({file, load_plan(file), ""});
  return compared;
}

std::vector<Compared> from_clusters(const CompareOptions& o) {
  const Stoppable stoppable;
  std::vector<Compared> compared;
  for (const std::string& cluster : o.clusters) {
    PlanOptions options = o.problem;
    options.cluster = cluster;
    auto [plan, reason] = plan_or_reason(prepare(options)->problem);
    compared.push_back({cluster, std::move(plan), std::move(reason)});
  }
  return compared;
}

void run(const CompareOptions& o) {
  const bool files = !o.plans.empty();
  if (files == !o.clusters.empty() || o.plans.size() + o.clusters.size() < 2) {
    throw UserError(Problem{"command line",
                            fmt::format("{} plans and {} clusters", o.plans.size(), o.clusters.size()),
                            "two or more plan files, or --model with two or more --cluster", "see --help"});
  }
  const std::vector<Compared> compared = files ? from_files(o.plans) : from_clusters(o);
  fmt::print("{}", table_of(compared, o.problem.cost));
  if (!compared.front().plan) return;
  const Plan& first = *compared.front().plan;
  for (const auto& [name, fitting, why] : compared) {
    if (!fitting) continue;
    const Plan& plan = *fitting;
    if (plan.model != first.model || plan.workload != first.workload) {
      fmt::print("  note: {} trains {} with {} x {} tokens per step, not the first one's {} with {} x {}\n",
                 name, plan.model.name, plan.workload.global_batch, plan.workload.sequence, first.model.name,
                 first.workload.global_batch, first.workload.sequence);
    }
  }
}

}  // namespace

std::function<int()> add_compare(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("compare", "Plans side by side, or the best plans of several clusters");
  auto o = std::make_shared<CompareOptions>();
  command->add_option("plans", o->plans, "Plan files");
  declare_problem(*command, o->problem);
  command->remove_option(command->get_option("--cluster"));
  command
      ->add_option("--cluster", o->clusters, "Clusters, separated by commas, each searched for its best plan")
      ->delimiter(',')
      ->expected(1, 64)
      ->type_name("CLUSTERS")
      ->group("Where");
  declare_space(*command, o->problem.space, true);
  declare_cost(*command, o->problem.cost);
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
