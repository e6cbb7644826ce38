// SPDX-License-Identifier: Apache-2.0

// mpt-plan diagnose: how a measured run compares with its plan, where it lost time, and which change gains
// most.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/command_line.h"
#include "base/error.h"
#include "base/files.h"
#include "planner/answer/diagnosed_run.h"
#include "planner/commands/commands.h"
#include "planner/commands/stoppable.h"

namespace mpt::planner {
namespace {

struct DiagnoseOptions {
  std::string plan, log, profile, kernels, measured;
  double step_time_s = 0.0, tflop_per_s = 0.0, tokens_per_s = 0.0;
  bool json = false, no_search = false;
};

struct Given {
  std::string option, text;
};

// The one figure that the options give; empty where there is a log.
Given given_figure(const DiagnoseOptions& o) {
  std::vector<Given> given;
  if (!o.measured.empty()) given.push_back({"--measured", o.measured});
  if (o.step_time_s > 0.0) given.push_back({"--step-time", fmt::format("{}s", o.step_time_s)});
  if (o.tflop_per_s > 0.0) given.push_back({"--tflops", fmt::format("{}TFLOP/s", o.tflop_per_s)});
  if (o.tokens_per_s > 0.0) given.push_back({"--tokens-per-s", fmt::format("{}tokens/s", o.tokens_per_s)});
  if (given.size() + (o.log.empty() ? 0 : 1) == 1) return given.empty() ? Given{} : given.front();
  throw UserError(Problem{"LOG", given.empty() ? "missing" : "several measurements",
                          "a log of the run, or one of --step-time SECONDS, --tflops, --tokens-per-s and "
                          "--measured",
                          "see --help"});
}

void run(const DiagnoseOptions& o) {
  const Given given = given_figure(o);
  const KnownPlan known{load_plan(o.plan), o.plan, o.profile, o.kernels};
  const std::string log = o.log.empty() ? "" : read_file(o.log);
  const DiagnosedRun found = [&] {
    const Stoppable stoppable;
    const Seek seek{!o.no_search, progress_line()};
    return o.log.empty() ? diagnose_figure(known, given.text, given.option, seek)
                         : diagnose_log(known, log, o.log, seek);
  }();
  fmt::print("{}",
             o.json ? diagnosis_json_text(known.plan, found) + "\n" : describe_diagnosis(known.plan, found));
}

}  // namespace

std::function<int()> add_diagnose(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "diagnose",
      "How a measured run compares with its plan, where it lost time, and which change gains most");
  auto o = std::make_shared<DiagnoseOptions>();
  command->add_option("plan", o->plan, "Plan file")->required();
  command->add_option("log", o->log, "What the run wrote: mpt-run's --log, or the log of " + readable_logs());
  add_number(*command, "--step-time", o->step_time_s, "Measured seconds of a step, where there is no log",
             between(1e-9, 1e7));
  add_number(*command, "--tflops", o->tflop_per_s,
             "Measured TFLOP/s per GPU, as Megatron-LM prints it (default: none)", between(1e-6, 1e9),
             "NUMBER");
  add_number(*command, "--tokens-per-s", o->tokens_per_s,
             "Measured tokens per second of all GPUs (default: none)", between(1e-6, 1e12), "NUMBER");
  command
      ->add_option(
          "--measured", o->measured,
          "Any of them with its unit: 18.7s, 380TFLOP/s, 7000tokens/s/GPU, \"MFU 41%\" (default: none)")
      ->type_name("FIGURE");
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
