// SPDX-License-Identifier: Apache-2.0

// mpt-plan sweep: the best plan along one axis, as table, CSV and plot.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/command_line.h"
#include "base/error.h"
#include "base/json.h"
#include "base/quantity.h"
#include "planner/commands/commands.h"
#include "planner/commands/plan_table.h"
#include "planner/explain/utilisation.h"
#include "reports/line_plot.h"
#include "reports/table.h"

namespace mpt::planner {
namespace {

struct SweepOptions {
  std::string over, csv, plot;
  std::vector<std::string> values;
  PlanRequest request;
  CostOptions cost;
};

// A k of tokens in a sequence is 1024, as in --seq.
double count_of(const std::string& over, const std::string& value) {
  return over == "seq" ? double(parse_sequence(value, "--values")) : parse_count(value, "--values");
}

void set_count(int64_t& target, const std::string& over, const std::string& value) {
  const double count = count_of(over, value);
  target = int64_t(count);
  if (double(target) != count || count > double(int64_t{1} << 28)) {
    throw UserError(Problem{"--values", "\"" + value.substr(0, 40) + "\"",
                            "whole numbers from 1 to 268435456, such as 64 or 4K", ""});
  }
}

PlanRequest at(const SweepOptions& o, const std::string& value) {
  PlanRequest request = o.request;
  const std::pair<const char*, int64_t*> counts[] = {{"gpus", &request.gpus},
                                                     {"ranks", &request.gpus},
                                                     {"global-batch", &request.global_batch},
                                                     {"seq", &request.sequence}};
  for (const auto& [name, target] : counts) {
    if (o.over == name) set_count(*target, o.over, value);
  }
  if (o.over == "memory") request.memory = value;
  return request;
}

std::vector<Compared> search_all(const SweepOptions& o) {
  std::vector<PlanRequest> requests;
  for (const std::string& value : o.values) requests.push_back(at(o, value));
  return named(o.values, compare_watched(requests));
}

std::string table_of(const std::vector<Compared>& points, const SweepOptions& o) {
  const Plan* const first = first_plan(points);
  const bool same_workload = o.over != "global-batch" && o.over != "seq";
  reports::Table table(plan_columns({o.over}, points, o.cost));
  for (const Compared& point : points) table.add_row(plan_row(point, o.cost));
  return (first == nullptr ? "" : describe_job(*first, same_workload, true)) + table.text() +
         describe_days(points, o.cost);
}

std::string csv_of(const std::vector<Compared>& points, const SweepOptions& o) {
  std::string text =
      o.over + ",layout,devices,step_time_s,tokens_per_s,model_flop_utilisation,bubble_share\n";
  for (const Compared& p : points) {
    if (!p.plan) {
      text += fmt::format("{},,,,,,\n", p.name);
      continue;
    }
    const Prediction& prediction = p.plan->prediction;
    text += fmt::format("{},{},{},{:.9g},{:.9g},{:.6g},{:.6g}\n", p.name, layout_name(p.plan->layout),
                        p.plan->layout.ranks(), prediction.step_time_s, prediction.tokens_per_s,
                        model_flop_utilisation(*p.plan), prediction.bubble_share);
  }
  return text;
}

std::string plot_of(const std::vector<Compared>& points, const SweepOptions& o) {
  reports::LinePlot plot{
      fmt::format("{}: tokens/s over {}", o.request.model.name, o.over), o.over, "tokens/s", {}};
  for (const Compared& p : points) {
    if (!p.plan) continue;
    const double x = o.over == "memory" ? double(parse_bytes(p.name, "--values")) / double(kGiB)
                                        : count_of(o.over, p.name);
    plot.points.push_back({x, p.plan->prediction.tokens_per_s, layout_name(p.plan->layout)});
  }
  if (o.over == "memory") plot.x_title = "memory per rank, GiB";
  return reports::to_svg(plot);
}

void run(const SweepOptions& o) {
  const std::vector<Compared> points = search_all(o);
  fmt::print("{}", table_of(points, o));
  if (!o.csv.empty()) write_file_atomically(o.csv, csv_of(points, o));
  if (!o.plot.empty()) write_file_atomically(o.plot, plot_of(points, o));
  for (const std::string& file : {o.csv, o.plot}) {
    if (!file.empty()) fmt::print("wrote {}\n", file);
  }
}

}  // namespace

std::function<int()> add_sweep(CLI::App& app) {
  CLI::App* command = app.add_subcommand("sweep", "The best plan along one axis, as table, CSV and plot");
  auto o = std::make_shared<SweepOptions>();
  add_choice(*command, "--over", o->over, "gpus (or ranks), global-batch, seq or memory",
             {"gpus", "ranks", "global-batch", "seq", "memory"})
      ->required()
      ->type_name("AXIS");
  command->add_option("--values", o->values, "Values of that axis, such as 8,16,32")
      ->required()
      ->delimiter(',')
      ->type_name("VALUES");
  add_output(*command, "--csv", o->csv, "Write the table as CSV")->group("Output");
  add_output(*command, "--plot", o->plot, "Write a plot of tokens/s as SVG")->group("Output");
  declare_problem(*command, o->request);
  declare_bounds(*command, o->request);
  declare_cost(*command, o->cost);
  command->footer(
      "Examples:\n  mpt-plan sweep --over gpus --values 64,128,256 --model llama3-70b --cluster dgx-h100 "
      "--global-batch 512\n"
      "  mpt-plan sweep --over seq --values 4k,8k,16k --model llama3-8b --cluster dgx-h100:1 --global-batch "
      "64");
  return [o] {
    run(*o);
    return kExitOk;
  };
}

}  // namespace mpt::planner
