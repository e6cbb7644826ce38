// SPDX-License-Identifier: Apache-2.0

// mpt-plan diagnose: what a measured run lost against its plan, and which change wins back most.

#include "planner/diagnose/diagnose.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "core/error.h"
#include "core/json.h"
#include "core/quantity.h"
#include "planner/commands/commands.h"
#include "planner/explain/explain.h"
#include "reports/table.h"

namespace mpt::planner {
namespace {

struct DiagnoseOptions {
  std::string plan, log, profile, kernels;
  double step_time_s = 0.0;
  bool json = false, no_search = false;
};

// What another layout would give on the same cluster: the layout itself may be the cause.
std::optional<Cause> better_layout(const Plan& plan, const DiagnoseOptions& o) {
  if (o.no_search || (plan.cost.source == "profile" && o.profile.empty()) ||
      (plan.cost.source == "own kernels" && o.kernels.empty()))
    return std::nullopt;
  PlanOptions options;
  options.profile = o.profile;
  options.kernels = o.kernels;
  const auto prepared = prepare(options, &plan);
  SearchProblem& problem = prepared->problem;
  problem.ranks = plan.layout.ranks();
  problem.near_misses = false;
  const auto search = watched_search(problem, 1);
  if (search->result.best.empty()) return std::nullopt;
  const Candidate& best = search->result.best.front();
  const double gain = plan.prediction.step_time_s - best.evaluation.step_time_s;
  Cause cause;
  cause.name = "the layout";
  cause.evidence = fmt::format(
      "{} is predicted at {}, bubble {}; the plan at {}, bubble {}", layout_name(best.estimate.layout),
      format_seconds(best.evaluation.step_time_s), format_percent(best.evaluation.bubble_share),
      format_seconds(plan.prediction.step_time_s), format_percent(plan.prediction.bubble_share));
  cause.change = "plan again on this cluster and move to the new layout with the next checkpoint";
  cause.seconds = gain;
  return cause;
}

// What the plan itself says where a log has no more than step times.
std::string expected_shares(const Plan& plan) {
  std::string text =
      fmt::format("The plan's own step: bubble {}", format_percent(plan.prediction.bubble_share));
  for (const ExposedCommunication& e : plan.prediction.exposed) {
    if (e.seconds > 0.0)
      text +=
          fmt::format(", {} {}", enum_name(e.kind), format_percent(e.seconds / plan.prediction.step_time_s));
  }
  return text +
         " of it.\nFor causes within the step, run it with mpt-run --log, or time one rank's kernels.\n";
}

Json to_json(const Diagnosis& d) {
  Json causes = Json::array();
  for (const Cause& c : d.causes) {
    causes.push_back({{"name", c.name},
                      {"seconds", c.seconds},
                      {"share", c.seconds / d.measured_s},
                      {"evidence", c.evidence},
                      {"change", c.change}});
  }
  return {{"predicted_step_time_s", d.predicted_s},
          {"measured_step_time_s", d.measured_s},
          {"causes", causes},
          {"unexplained_s", d.unexplained_s}};
}

std::string describe(const Plan& plan, const MeasuredRun& run, const Diagnosis& d) {
  std::string text = fmt::format("{}\n{} on {}, {}\n\n  measured {} per step, predicted {}: {:+.1f} %\n\n",
                                 layout_name(plan.layout), plan.model.name, plan.cluster.name, run.source,
                                 format_seconds(d.measured_s), format_seconds(d.predicted_s),
                                 (d.measured_s / d.predicted_s - 1.0) * 100.0);
  if (d.causes.empty()) {
    text += "Nothing costs 1 % of the step or more.\n";
  } else {
    reports::Table table(
        {{"cause", reports::Align::left}, {"costs"}, {"of the step"}, {"seen", reports::Align::left}});
    for (const Cause& c : d.causes)
      table.add_row(
          {c.name, format_seconds(c.seconds), format_percent(c.seconds / d.measured_s), c.evidence});
    text += table.text();
    text += fmt::format("\nWins back most: {} ({}): {}.\n", d.causes.front().name,
                        format_percent(d.causes.front().seconds / d.measured_s), d.causes.front().change);
  }
  if (std::abs(d.unexplained_s) > 0.01 * d.measured_s && !run.instructions.empty())
    text += fmt::format("Not explained: {}.\n", format_seconds(d.unexplained_s));
  if (run.instructions.empty()) text += "\n" + expected_shares(plan);
  return text;
}

void run(const DiagnoseOptions& o) {
  const Plan plan = load_plan(o.plan);
  MeasuredRun measured;
  if (!o.log.empty()) {
    measured = read_run_log(o.log, plan);
  } else if (o.step_time_s > 0.0) {
    measured.step_time_s = o.step_time_s;
    measured.source = "a step time";
  } else {
    throw UserError(Problem{"LOG", "missing", "a log of the run, or --step-time SECONDS", "see --help"});
  }
  Diagnosis diagnosis = diagnose(plan, measured);
  if (auto cause = better_layout(plan, o)) add_cause(diagnosis, std::move(*cause));
  if (o.json) {
    fmt::print("{}\n", to_json(diagnosis).dump(1));
  } else {
    fmt::print("{}", describe(plan, measured, diagnosis));
  }
}

}  // namespace

std::function<int()> add_diagnose(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("diagnose", "What a run lost against its plan, and what wins back most");
  auto o = std::make_shared<DiagnoseOptions>();
  command->add_option("plan", o->plan, "Plan file")->required();
  command->add_option("log", o->log,
                      "What the run wrote: mpt-run's --log or --trace, Megatron-LM's or torchtitan's output");
  command->add_option("--step-time", o->step_time_s, "Measured seconds of a step, where there is no log")
      ->check(CLI::Range(1e-9, 1e7));
  command->add_option("--profile", o->profile, "The profile that the plan was made with (default: none)")
      ->type_name("FILE");
  command->add_option("--kernels", o->kernels, "The kernel times that the plan was made with (default: none)")
      ->type_name("FILE");
  command->add_flag("--no-search", o->no_search, "Leave out whether another layout is better");
  command->add_flag("--json", o->json, "Print JSON");
  command->footer(
      "Examples:\n  mpt-plan diagnose plan.json run.jsonl\n  mpt-plan diagnose plan.json --step-time 18.7");
  return [o] {
    run(*o);
    return kExitOk;
  };
}

}  // namespace mpt::planner
