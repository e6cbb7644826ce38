// SPDX-License-Identifier: Apache-2.0

// mpt-plan export: writes a plan in the words of a framework or launcher.

#include "planner/export/export.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "base/outputs.h"
#include "base/quantity.h"
#include "planner/commands/commands.h"
#include "reports/next_steps.h"

namespace mpt::planner {
namespace {

struct ExportOptions {
  std::string plan, folder = ".";
  std::vector<std::string> to;
};

std::string targets_text() {
  std::string text;
  for (const ExportTarget& target : export_targets())
    text += fmt::format("\n  {:<16} {}", target.name, target.what);
  return text;
}

// What to know of a plan that was priced for another framework; empty where it was for this one, and for
// launchers, which start any.
std::string mismatch(const std::string& target, const Plan& plan) {
  const std::string& framework = plan.layout.execution.framework;
  for (const reports::TargetFrameworks& t : reports::frameworks_of_targets()) {
    if (t.target == target && !t.fits(framework))
      return fmt::format(
          "step time and memory are those of {}, not of {}: mpt-plan --framework {} plans for it", framework,
          t.plan_for, t.plan_for);
  }
  return "";
}

// The note as a comment at the top of a file that can have one.
std::string with_comment(const ExportedFile& file, const std::string& note) {
  static const std::vector<std::string> kCommented{".sh", ".py", ".toml", ".yaml", ".sbatch"};
  const bool commented = std::any_of(kCommented.begin(), kCommented.end(),
                                     [&](const std::string& ending) { return file.name.ends_with(ending); });
  if (note.empty() || !commented) return file.text;
  const size_t at = file.text.starts_with("#!") ? file.text.find('\n') + 1 : 0;
  return file.text.substr(0, at) + "# Note: " + note + ".\n" + file.text.substr(at);
}

void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && std::filesystem::is_directory(folder, error)) return;
  throw UserError(
      Problem{"-o " + folder, error ? error.message() : "not a folder", "a folder to write to", ""});
}

void run(const ExportOptions& o) {
  std::vector<const ExportTarget*> targets;
  for (const std::string& name : o.to) targets.push_back(&find_export_target(name));
  const Plan plan = load_plan(o.plan);
  make_folder(o.folder);
  std::vector<Exported> all;
  std::vector<NamedFile> files;
  for (const ExportTarget* target : targets) {
    all.push_back(target->write(plan));
    for (const ExportedFile& file : all.back().files)
      files.push_back({"-o", std::filesystem::path(o.folder) / file.name});
  }
  check_distinct_files({{"plan", o.plan}}, files);
  fmt::print("Predicted {} per step in {}, by {}\n", format_seconds(plan.prediction.step_time_s),
             enum_name(plan.layout.precision), plan.layout.execution.framework);
  for (size_t t = 0; t < targets.size(); ++t) {
    const ExportTarget* target = targets[t];
    const Exported& exported = all[t];
    const std::string note = mismatch(target->name, plan);
    fmt::print("{}: {}\n", target->name, target->what);
    if (!note.empty()) fmt::print("  note: {}\n", note);
    for (const ExportedFile& file : exported.files) {
      const std::filesystem::path path = std::filesystem::path(o.folder) / file.name;
      write_file_atomically(path, with_comment(file, note));
      if (file.executable) {
        std::filesystem::permissions(path,
                                     std::filesystem::perms::owner_exec | std::filesystem::perms::group_exec |
                                         std::filesystem::perms::others_exec,
                                     std::filesystem::perm_options::add);
      }
      fmt::print("  wrote {}\n", path.string());
    }
    for (const std::string& warning : exported.warnings) fmt::print("  warning: {}\n", warning);
  }
}

}  // namespace

std::function<int()> add_export(CLI::App& app) {
  CLI::App* command = app.add_subcommand("export", "Write a plan for the framework or launcher that you use");
  auto o = std::make_shared<ExportOptions>();
  command->add_option("plan", o->plan, "Plan file")->required();
  command->add_option("--to", o->to, "Whom for, several separated by commas; see below")
      ->required()
      ->delimiter(',')
      ->type_name("NAMES");
  command->add_option("-o,--output", o->folder, "Folder to write to (default: this one)")
      ->type_name("FOLDER");
  command->footer("What --to takes; names of --framework are understood, too:" + targets_text() +
                  "\n\nExamples:\n  mpt-plan export plan.json --to megatron,slurm -o run70b\n"
                  "  mpt-plan export plan.json --to fsdp2");
  return [o] {
    run(*o);
    return kExitOk;
  };
}

}  // namespace mpt::planner
