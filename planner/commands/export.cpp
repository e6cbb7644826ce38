// SPDX-License-Identifier: Apache-2.0

// mpt-plan export: writes a plan in the words of a framework or launcher.

#include "frameworks/export.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "base/outputs.h"
#include "base/quantity.h"
#include "frameworks/framework.h"
#include "frameworks/supports/supports.h"
#include "planner/commands/commands.h"

namespace mpt::planner {
namespace {

struct ExportOptions {
  std::string plan, folder = ".";
  std::vector<std::string> to;
};

std::string targets_text() {
  std::string text;
  for (const frameworks::ExportTarget& target : frameworks::export_targets())
    text += fmt::format("\n  {:<22} {}", target.name, target.what);
  return text;
}

// What to know of a plan that was priced for another framework; empty where it was for this one, and for
// launchers, which start any.
std::string mismatch(const frameworks::ExportTarget& target, const Plan& plan) {
  const std::string& framework = plan.layout.execution.framework;
  if (frameworks::takes_plans_of(target, framework)) return "";
  return fmt::format("step time and memory are those of {}, not of {}: mpt-plan --framework {} plans for it",
                     framework, target.name, target.name);
}

// How to get a plan that the target runs. There is none of a model that it lacks. A plan that was made for
// the target already is the best that it gets.
std::string other_plan(const frameworks::ExportTarget& target, const Plan& plan) {
  const frameworks::Framework* framework = frameworks::find_framework(target.name);
  const Layout& l = plan.layout;
  if (framework == nullptr || frameworks::supports_model(*framework, plan.model, l.precision) ||
      frameworks::supports_training(*framework, l.training))
    return "; no plan of this model and way to train would run there";
  if (l.execution.framework == framework->name && !plan.request.beyond_framework) return "";
  return fmt::format("; mpt-plan --framework {} plans for what it can", target.name);
}

// The note as a comment at the top of a file that can have one.
std::string with_comment(const frameworks::ExportedFile& file, const std::string& note) {
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
  std::vector<const frameworks::ExportTarget*> targets;
  for (const std::string& name : o.to) targets.push_back(&frameworks::find_export_target(name));
  const Plan plan = load_plan(o.plan);
  make_folder(o.folder);
  std::vector<frameworks::Exported> all;
  std::vector<NamedFile> files;
  std::map<std::string, std::string> texts;
  for (const frameworks::ExportTarget* target : targets) {
    all.push_back(target->write(plan));
    for (const frameworks::ExportedFile& file : all.back().files) {
      // Two frameworks may want one file, such as a model's config.json.
      if (const auto [known, is_new] = texts.try_emplace(file.name, file.text);
          !is_new && known->second == file.text)
        continue;
      files.push_back({"-o", std::filesystem::path(o.folder) / file.name});
    }
  }
  check_distinct_files({{"plan", o.plan}}, files);
  fmt::print("Predicted {} per step in {}, by {}\n", format_seconds(plan.prediction.step_time_s),
             enum_name(plan.layout.precision), plan.layout.execution.framework);
  for (size_t t = 0; t < targets.size(); ++t) {
    const frameworks::ExportTarget* target = targets[t];
    const frameworks::Exported& exported = all[t];
    const std::string note = mismatch(*target, plan);
    fmt::print("{}: {}\n", target->name, target->what);
    if (!note.empty()) fmt::print("  note: {}\n", note);
    for (const frameworks::ExportedFile& file : exported.files) {
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
    if (const auto rejection = frameworks::cannot_run(*target, plan))
      fmt::print("  warning: {}{}\n", rejection->reason, other_plan(*target, plan));
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
  command->footer("What --to takes; other names of --framework are understood, too:" + targets_text() +
                  "\n\nExamples:\n  mpt-plan export plan.json --to " + frameworks::usual_framework().name +
                  ",slurm -o run70b\n  mpt-plan export plan.json --to kubernetes");
  return [o] {
    run(*o);
    return kExitOk;
  };
}

}  // namespace mpt::planner
