// SPDX-License-Identifier: Apache-2.0

// mpt-plan compare: a table of plans, or of the best plans along axes: clusters, frameworks, and any other
// option of a request.

#include <CLI/CLI.hpp>
#include <memory>
#include <set>

#include "base/command_line.h"
#include "base/error.h"
#include "base/files.h"
#include "base/ranges.h"
#include "base/terminal.h"
#include "base/text.h"
#include "planner/commands/commands.h"
#include "planner/commands/plan_table.h"
#include "planner/explain/utilisation.h"
#include "planner/request/resolve.h"

namespace mpt::planner {
namespace {

constexpr size_t kMostPoints = 256;

struct ComparedAxis {
  std::string name;
  std::vector<std::string> values;
  std::string typed = {};  // behind --over; empty: the values of another option
};

struct CompareOptions {
  std::vector<std::string> plans, clusters, frameworks, over;
  std::vector<double> prices;
  std::string csv;
  PlanOptions base;
};

// Errors of a value are those of its axis, as typed.
template <class Work>
auto told_of_axes(const std::vector<ComparedAxis>& axes, Work&& work) {
  try {
    return work();
  } catch (const UserError& error) {
    std::vector<Problem> problems = error.problems();
    for (Problem& told : problems)
      for (const ComparedAxis& axis : axes) {
        if (axis.typed.empty() || split_at(told.where, ' ').front() != "--" + axis.name) continue;
        told.where = "--over " + axis.typed;
        told.remedy = told.remedy.empty() ? "put another value in its place"
                                          : with_value(told.remedy, "--" + axis.name, "put in its place");
      }
    throw UserError(std::move(problems));
  }
}

// "gpus=64,128"
ComparedAxis parse_axis(const std::string& text) {
  const size_t equals = text.find('=');
  ComparedAxis axis{text.substr(0, equals), {}, text};
  if (axis.name == "ranks") axis.name = "gpus";
  if (equals != std::string::npos) axis.values = split_at(text.substr(equals + 1), ',');
  std::erase(axis.values, "");
  if (axis.values.empty())
    refuse_input("--over", "\"" + text.substr(0, 40) + "\"", "an option and its values",
                 "for example --over gpus=64,128");
  PlanRequest tried;  // an unknown option is reported before the count of values
  told_of_axes({axis}, [&] { set_option(tried, axis.name, axis.values.front()); });
  return axis;
}

// Checks that an option of an axis is given only there, and once.
void check_axes(const CLI::App& command, const std::vector<ComparedAxis>& axes) {
  std::set<std::string> seen;
  for (const ComparedAxis& axis : axes) {
    const std::string option = "--" + axis.name;
    const CLI::Option* const given = command.get_option_no_throw(option);
    const bool twice = !seen.insert(axis.name).second;
    if (!twice && (given == nullptr || given->count() == 0)) continue;
    refuse_input("--over " + axis.name, "given with " + (twice ? "--over again" : option), "one of the two",
                 "leave one of them out");
  }
}

// Clusters and frameworks are axes if there are several of them.
std::vector<ComparedAxis> axes_of(const CLI::App& command, CompareOptions& o) {
  auto axes = mapped<ComparedAxis>(o.over, parse_axis);
  check_axes(command, axes);
  if (o.frameworks.size() == 1) o.base.request.framework = o.frameworks.front();
  if (o.frameworks.size() > 1) axes.insert(axes.begin(), {"framework", o.frameworks});
  if (o.clusters.size() == 1) o.base.request.cluster = {o.clusters.front(), {}};
  if (o.clusters.size() > 1) axes.insert(axes.begin(), {"cluster", o.clusters});
  return axes;
}

// Checks that a run belongs to one point of the axes. Runs from plans name that point.
void check_runs(const std::vector<ObservedRun>& runs, const std::vector<ComparedAxis>& axes) {
  const std::set<std::string> told{"model",     "cluster",      "gpus", "framework",
                                   "precision", "global-batch", "seq"};
  for (const ObservedRun& run : runs)
    for (const ComparedAxis& axis : axes)
      if (run.cluster.name.empty() && told.contains(axis.name))
        refuse_input("--observed '" + run.layout + "'", "does not say its " + axis.name,
                     "a run that a plan keeps",
                     "mpt-plan ... --observed ... -o plan.json, then compare --request plan.json");
}

struct Point {
  Compared compared;
  PlanRequest request;
};

std::vector<Point> points_of(const CompareOptions& o, const std::vector<ComparedAxis>& axes) {
  const double price = o.prices.size() == 1 ? o.prices.front() : 0.0;
  std::vector<Point> points{{{{}, price, {}, ""}, o.base.request}};
  for (const ComparedAxis& axis : axes) {
    std::vector<Point> more;
    for (const Point& point : points)
      for (size_t v = 0; v < axis.values.size(); ++v) {
        Point& next = more.emplace_back(point);
        set_option(next.request, axis.name, axis.values[v]);
        next.compared.at.push_back(axis.values[v]);
        if (axis.name == "cluster" && o.prices.size() > 1) next.compared.price = o.prices[v];
      }
    points = std::move(more);
    if (points.size() > kMostPoints)
      refuse_input("--over", fmt::format("more than {} plans", kMostPoints), "fewer values");
  }
  return points;
}

std::vector<Compared> from_searches(const CompareOptions& o, const std::vector<ComparedAxis>& axes) {
  std::vector<Compared> rows;
  std::vector<PlanOrReason> answers = told_of_axes(axes, [&] {
    std::vector<PlanRequest> requests;
    for (Point& point : points_of(o, axes)) {
      rows.push_back(std::move(point.compared));
      requests.push_back(std::move(point.request));
    }
    return compare_watched(requests);
  });
  for (size_t n = 0; n < rows.size(); ++n) {
    if (answers[n].plan) rows[n].plan = as_observed(std::move(*answers[n].plan));
    rows[n].why = std::move(answers[n].reason);
  }
  return rows;
}

std::vector<Compared> from_files(const CompareOptions& o) {
  const double price = o.prices.empty() ? 0.0 : o.prices.front();
  return mapped<Compared>(o.plans, [&](const std::string& file) {
    return Compared{{file}, price, as_observed(load_plan(file)), ""};
  });
}

void check(const CompareOptions& o, const std::vector<ComparedAxis>& axes) {
  size_t searches = axes.empty() ? 0 : 1;
  for (const ComparedAxis& axis : axes) searches *= std::min(axis.values.size(), kMostPoints + 1);
  const bool somewhere = !axes.empty() || !o.clusters.empty() || !o.frameworks.empty();
  if (o.plans.empty() ? searches >= 2 : o.plans.size() >= 2 && !somewhere) return;
  refuse_input("command line", fmt::format("plan files: {}, searches: {}", o.plans.size(), searches),
               "two or more plan files, or a model with two or more values: --cluster A,B, --framework A,B "
               "or --over gpus=64,128",
               "see --help");
}

void run(const CLI::App& command, CompareOptions& o) {
  const std::vector<ComparedAxis> axes = axes_of(command, o);
  check(o, axes);
  const auto clusters = find_if(axes, [](const ComparedAxis& a) { return a.name == "cluster"; });
  check_prices(o.prices, clusters == axes.end() ? 1 : clusters->values.size());
  read_runs(o.base, o.base.request_file);
  check_runs(o.base.request.observed, axes);
  Comparison comparison{{}, o.plans.empty() ? from_searches(o, axes) : from_files(o), o.base.cost};
  for (const ComparedAxis& axis : axes) comparison.axes.push_back(axis.name);
  if (axes.empty()) {
    comparison.axes = {"plan"};
    comparison.are_files = true;
  }
  const std::string idle = idle_cost(o.base.cost, !o.prices.empty());
  fmt::print("{}{}", describe(comparison), idle.empty() ? "" : wrapped("note: " + idle));
  if (o.csv.empty()) return;
  write_file_atomically(o.csv, csv_of(comparison));
  fmt::print("wrote {}\n", o.csv);
}

}  // namespace

std::function<int()> add_compare(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("compare", "Plans side by side, or the best plans over values of an option");
  auto o = std::make_shared<CompareOptions>();
  command->add_option("plans", o->plans, "Plan files");
  declare_request_file(*command, o->base);
  command->remove_option(command->get_option("--print-request"));
  declare_problem(*command, o->base.request);
  const std::string framework = command->get_option("--framework")->get_description();
  command->remove_option(command->get_option("--cluster"));
  command->remove_option(command->get_option("--framework"));
#include "generated/ComparedOptions.inc"
  declare_bounds(*command, o->base.request);
  declare_observed(*command, o->base);
  declare_cost(*command, o->base.cost);
  command->remove_option(command->get_option("--price"));
#include "generated/CompareOptions.inc"
  return done_by([command, o] { run(*command, *o); });
}

}  // namespace mpt::planner
