// SPDX-License-Identifier: Apache-2.0

// mpt-plan export: writes a plan in the words of a framework or launcher.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "frameworks/framework.h"
#include "planner/answer/exported_plan.h"
#include "planner/commands/commands.h"

namespace mpt::planner {
namespace {

struct ExportOptions {
  std::string plan, folder;  // empty: named after the first of `to`
  std::vector<std::string> to;
  bool force = false, smoke = false;
};

std::string targets_text() {
  return sum_of<std::string>(frameworks::export_targets(), [](const frameworks::ExportTarget& target) {
    return fmt::format("\n  {:<22} {}", target.name, target.what);
  });
}

// A short run on made-up data, and the command that judges its log. On several nodes it is the job that was
// exported together with it.
void tell_trial(const ExportOptions& o, const std::string& folder, const Plan& plan,
                const std::vector<ExportedPlan>& all) {
  constexpr int64_t kSteps = 50;
  constexpr std::string_view kJob = "sbatch ";
  const auto exported = [&](const std::string& name) {
    return any_of(all, [&](const ExportedPlan& e) { return e.target->name == name; });
  };
  const auto trial = frameworks::trial_command(plan, folder, kSteps);
  if (!trial || !exported(plan.layout.execution->framework)) return;
  const bool job = trial->command.starts_with(kJob);
  if (job && !exported("slurm")) return;
  fmt::print("A trial of {} steps on made-up data{}:\n{}{}", kSteps, trial->where,
             wrapped_command(job ? "sbatch --wait --output trial.log " + trial->command.substr(kJob.size())
                                 : trial->command + " 2>&1 | tee trial.log",
                             "  "),
             wrapped_command(fmt::format("mpt-plan diagnose {} trial.log", shell_word(o.plan)), "  "));
}

void run(ExportOptions o) {
  if (o.to.empty())
    refuse_input("--to", "missing", "a framework or launcher, such as megatron-core,slurm", "see --help");
  Plan plan = load_plan(o.plan);
  std::string start;
  if (o.smoke) {
    if (o.folder.empty()) o.folder = "smoke";
    for (const std::string& name : o.to)
      start = smoke_command(frameworks::find_export_target(name).name, plan, o.folder);
    plan = smoke_plan(plan);
  }
  const std::vector<ExportedPlan> all = exported_plans(o.to, plan, o.force);
  const std::filesystem::path folder = o.folder.empty() ? all.front().target->name : o.folder;
  std::set<std::string> names{kExportList};  // two frameworks may both write a model's config.json
  for (const ExportedPlan& one : all)
    for (const frameworks::ExportedFile& file : one.files) names.insert(file.name);
  for (const std::string& name : names) files_of_program().writes({"-o", folder / name});
  write_exported(all, folder);
  if (!o.smoke)
    fmt::print("Predicted {} per step in {}, by {}\n", format_seconds(plan.prediction.step_time_s),
               enum_name(plan.layout.precision), plan.layout.execution->framework);
  for (const ExportedPlan& one : all) {
    fmt::print("{}: {}\n", one.target->name, one.target->what);
    if (!one.note.empty()) fmt::print("  note: {}\n", one.note);
    for (const auto& file : one.files) fmt::print("  wrote {}\n", (folder / file.name).string());
    for (const std::string& need : one.needs) fmt::print("  needs: {}\n", need);
    for (const std::string& warning : one.warnings) fmt::print("  warning: {}\n", warning);
  }
  if (!o.smoke) return tell_trial(o, folder.string(), plan, all);
  fmt::print("Two steps of {} on CPU processes, four small layers in fp32:\n{}", layout_name(plan.layout),
             wrapped_command(start, " "));
}

}  // namespace

std::function<int()> add_export(CLI::App& app) {
  CLI::App* command = app.add_subcommand("export", "Write a plan for the framework or launcher that you use");
  auto o = std::make_shared<ExportOptions>();
#include "generated/ExportOptions.inc"
  command->footer("What --to takes; other names of --framework are understood, too:" + targets_text() +
                  "\n\nExamples:\n  mpt-plan export plan.json --to " + frameworks::usual_framework().name +
                  ",slurm -o run70b\n  mpt-plan export plan.json --to kubernetes");
  return done_by([o] { run(*o); });
}

}  // namespace mpt::planner
