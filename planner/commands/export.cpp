// SPDX-License-Identifier: Apache-2.0

// mpt-plan export: writes a plan in the words of a framework or launcher.

#include "frameworks/export.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
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

// Throws UserError for a model that runs there and that MPT does not write yet.
void check_written(const frameworks::ExportTarget& target, const Plan& plan) {
  const frameworks::Framework* const framework = frameworks::find_framework(target.name);
  if (framework == nullptr) return;
  const ModelVerdict verdict = frameworks::verdict_on(*framework, plan.model, plan.layout.training);
  if (verdict.verdict != VerdictKind::not_written) return;
  std::string remedy = "write its files by hand: mpt-plan explain says what the plan is";
  for (const std::string& name :
       frameworks::frameworks_that_train(plan.model, plan.layout.training, plan.layout.precision)) {
    const frameworks::Framework& other = *frameworks::find_framework(name);
    const ModelSpec its = frameworks::trained_by(other, plan.model);
    if (frameworks::export_target_of(name) == nullptr ||
        frameworks::verdict_on(other, its, plan.layout.training).verdict != VerdictKind::exported)
      continue;
    remedy = "plan with --framework " + name;
    break;
  }
  throw UserError(
      Problem{"--to " + framework->name, verdict.reason, "a framework for which MPT writes it", remedy});
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

// A file in the folder says what exports wrote there: a line with digest and name for each.
constexpr const char* kList = ".mpt-export";
constexpr std::string_view kListHead = "# Digests of the files that mpt-plan export wrote here\n";

std::string list_line(const std::string& name, const std::string& text) {
  return text_digest(text) + " " + name + "\n";
}

// Of a file that an export may have written; else empty. It is an output, so no reader of base/ opens it.
std::string text_of(const std::filesystem::path& file) {
  constexpr uintmax_t kMost = uintmax_t{64} << 20;
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error) || std::filesystem::file_size(file, error) > kMost)
    return "";
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Adds the list as it will be. Throws UserError with every file that would be lost: it is neither as an
// export wrote it nor as this one will.
void check_own_files(const std::filesystem::path& folder, std::map<std::string, std::string>& texts) {
  const std::string list = text_of(folder / kList);
  std::string after(kListHead);
  std::vector<Problem> problems;
  const auto keep = [&](const std::string& name, bool own) {
    std::error_code error;
    if (own || !std::filesystem::exists(std::filesystem::symlink_status(folder / name, error))) return;
    problems.push_back({"-o " + (folder / name).string(),
                        "is there already, and is not as mpt-plan export wrote it",
                        "no file of this name, or that of an earlier export",
                        "name another folder with -o, or rename the file; nothing was written"});
  };
  keep(kList, list.starts_with(kListHead));
  for (const auto& [name, text] : texts) {
    const std::string there = text_of(folder / name);
    keep(name, there == text || list.find("\n" + list_line(name, there)) != std::string::npos);
    after += list_line(name, text);
  }
  if (!problems.empty()) throw UserError(std::move(problems));
  std::istringstream lines(list);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("#") && texts.count(line.substr(line.find(' ') + 1)) == 0) after += line + "\n";
  }
  texts[kList] = after;
}

void write_and_tell(const std::filesystem::path& path, const frameworks::ExportedFile& file) {
  write_file_atomically(path, file.text);
  using std::filesystem::perms;
  if (file.executable)
    std::filesystem::permissions(path, perms::owner_exec | perms::group_exec | perms::others_exec,
                                 std::filesystem::perm_options::add);
  fmt::print("  wrote {}\n", path.string());
}

void run(const ExportOptions& o) {
  std::vector<const frameworks::ExportTarget*> targets;
  for (const std::string& name : o.to) targets.push_back(&frameworks::find_export_target(name));
  const Plan plan = load_plan(o.plan);
  for (const frameworks::ExportTarget* target : targets) check_written(*target, plan);
  const std::filesystem::path folder = o.folder;
  std::vector<frameworks::Exported> all;
  std::map<std::string, std::string> texts;
  files_of_program().writes({"-o", folder / kList});
  for (const frameworks::ExportTarget* target : targets) {
    all.push_back(target->write(plan));
    for (frameworks::ExportedFile& file : all.back().files) {
      file.text = with_comment(file, mismatch(*target, plan));
      // Two frameworks may want one file, such as a model's config.json.
      const auto [known, is_new] = texts.try_emplace(file.name, file.text);
      if (is_new || known->second != file.text) files_of_program().writes({"-o", folder / file.name});
    }
  }
  check_own_files(folder, texts);
  make_folder(o.folder);
  fmt::print("Predicted {} per step in {}, by {}\n", format_seconds(plan.prediction.step_time_s),
             enum_name(plan.layout.precision), plan.layout.execution.framework);
  for (size_t t = 0; t < targets.size(); ++t) {
    const frameworks::ExportTarget* target = targets[t];
    const std::string note = mismatch(*target, plan);
    fmt::print("{}: {}\n", target->name, target->what);
    if (!note.empty()) fmt::print("  note: {}\n", note);
    for (const frameworks::ExportedFile& file : all[t].files) write_and_tell(folder / file.name, file);
    if (const auto rejection = frameworks::cannot_run(*target, plan))
      fmt::print("  warning: {}{}\n", rejection->reason, other_plan(*target, plan));
    for (const std::string& warning : all[t].warnings) fmt::print("  warning: {}\n", warning);
  }
  write_file_atomically(folder / kList, texts[kList]);
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
