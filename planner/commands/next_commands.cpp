// SPDX-License-Identifier: Apache-2.0

// Commands to type next. They work as printed.

#include <CLI/CLI.hpp>

#include "base/ranges.h"
#include "base/terminal.h"
#include "frameworks/export_targets.h"
#include "planner/answer/recommend.h"
#include "planner/commands/commands.h"
#include "planner/request/resolve_parts.h"
#include "reports/next_steps.h"

namespace mpt::planner {
namespace {

// mpt-run is in the folder of mpt-plan, with the same path prefix as the call.
std::string sibling(const std::string& program, const char* name) {
  const size_t slash = program.rfind('/');
  return slash == std::string::npos ? name : program.substr(0, slash + 1) + name;
}

// The bound of another kind of layout than the plan's.
const char* another_kind(const Layout& l) {
  return l.pipeline > 1 ? "pp=1" : l.tensor > 1 ? "tp=1" : l.ranks() > 1 ? "tp=2" : "recompute=full";
}

// Adds launch files and a trial, if MPT writes the framework's files for this plan.
void add_export(const PlanOptions& o, const Plan& plan, const std::string& file, const std::string& folder,
                std::vector<NextCommand>& next) {
  const frameworks::ExportTarget* const target = frameworks::usual_target(plan, o.request.framework);
  if (target == nullptr || (plan.verdict && !target->tuner) || frameworks::cannot_run(*target, plan)) return;
  next.push_back({fmt::format("{} export {} --to {}{} -o {}", o.program, file, target->name,
                              target->tuner ? "" : ",slurm", folder),
                  fmt::format("launch files for {}", target->name)});
  if (target->tuner) return;
  const auto trial = frameworks::trial_command(plan, folder, kTrialSteps);
  if (plan.risk && trial)
    next.push_back({trial->command, fmt::format("a trial of {} steps{}", kTrialSteps, trial->where)});
}

// Adds the layout that may not fit, if the plan is the fallback.
void add_try_first(const PlanOptions& o, const Plan& plan, std::vector<NextCommand>& next) {
  if (!plan.risk || plan.risk->fall_back != 1 || o.again.empty()) return;
  next.push_back({o.again + " --try-first -o try-first.json", "TRY FIRST as a plan"});
  add_export(o, plan, "try-first.json", "try-first", next);
}

}  // namespace

std::string command_again(const CLI::App& options, const std::string& words,
                          const std::vector<std::string>& without) {
  std::string text = words;
  for (const CLI::Option* option : options.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || contains(without, name) || contains(without, option->get_group())) continue;
    if (name == "--observed") {  // its words contain commas
      for (const std::string& word : option->results()) text += " " + name + " " + shell_word(word);
      continue;
    }
    if (!option->get_positional()) text += " " + name;
    if (option->get_items_expected_max() == 0) continue;
    text += " " + shell_word(joined(option->results(), ","));
  }
  return text;
}

std::string plan_file(const PlanOptions& o) {
  return o.request_file == "plan.json" ? "new-plan.json" : "plan.json";
}

std::vector<NextCommand> next_commands(const PlanOptions& o, const Plan& plan) {
  const std::string file = shell_word(o.out.output.empty() ? plan_file(o) : o.out.output);
  std::vector<NextCommand> next;
  add_try_first(o, plan, next);
  if (o.out.output.empty() && !o.again.empty())
    next.push_back({fmt::format("{} -o {}", o.again, file), "keep the plan"});
  if (is_for_this_runtime(plan.cluster, plan.layout.execution))
    next.push_back({fmt::format("{} {} {}", sibling(o.program, "mpt-run"), file, reports::data_options(plan)),
                    "train on your data"});
  else
    add_export(o, plan, file, "run", next);
  if (plan.risk) return next;  // two layouts to keep and to try fill the screen
  std::string prices;
  if (!o.request.profile.empty()) prices = " --profile " + shell_word(o.request.profile);
  if (!o.request.kernels.empty()) prices = " --kernels " + shell_word(o.request.kernels);
  next.push_back(
      {fmt::format("{} explain {} --why-not {}{}", o.program, file, another_kind(plan.layout), prices),
       "why not another layout"});
  if (o.out.report.empty())
    next.push_back(
        {fmt::format("{} --from {} --report plan.html", o.program, file), "timeline and memory as a page"});
  return next;
}

}  // namespace mpt::planner
