// SPDX-License-Identifier: Apache-2.0

// mpt-plan diagnose: how a measured run compares with its plan, where it lost time, and which change gains
// most.

#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "planner/answer/diagnosed_run.h"
#include "planner/commands/commands.h"

namespace mpt::planner {
namespace {

struct DiagnoseOptions {
  std::string plan, log, profile, kernels, measured;
  bool json = false, no_search = false;
};

void run(const DiagnoseOptions& o) {
  if (o.measured.empty() == o.log.empty())
    refuse_input("LOG", o.log.empty() ? "missing" : "given with --measured",
                 "a log of the run, or one figure of it: --measured 18.7s", "see --help");
  const KnownPlan known{load_plan(o.plan), o.plan, o.profile, o.kernels};
  const std::string log = o.log.empty() ? "" : read_file(o.log);
  const DiagnosedRun found = [&] {
    const Stoppable stoppable;
    const Seek seek{!o.no_search, progress_line()};
    return o.log.empty() ? diagnose_figure(known, o.measured, "--measured", seek)
                         : diagnose_log(known, log, o.log, seek);
  }();
  fmt::print("{}",
             o.json ? diagnosis_json_text(known.plan, found) + "\n" : describe_diagnosis(known.plan, found));
}

}  // namespace

std::function<int()> add_diagnose(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("diagnose", "Where a measured run lost time, and which change gains most");
  auto o = std::make_shared<DiagnoseOptions>();
  declare_known(*command, o->plan, o->profile, o->kernels);
#include "generated/DiagnoseOptions.inc"
  return done_by([o] { run(*o); });
}

}  // namespace mpt::planner
