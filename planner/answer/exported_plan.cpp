// SPDX-License-Identifier: Apache-2.0
#include "planner/answer/exported_plan.h"

#include <fstream>
#include <sstream>

#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "frameworks/framework.h"
#include "frameworks/supports/supports.h"
#include "frameworks/transformers/classes.h"
#include "planner/request/resolve.h"

namespace mpt::planner {
namespace {

// The name of a tuner is also an alias of a framework, which has a different export.
const frameworks::Framework* framework_of(const frameworks::ExportTarget& target) {
  return target.tuner ? nullptr : frameworks::find_framework(target.name);
}

// Two frameworks that start from one script are one program. Its other names mean the plan's framework.
const frameworks::ExportTarget& target_of(const std::string& name, const Plan& plan) {
  const frameworks::ExportTarget& target = frameworks::find_export_target(name);
  const frameworks::Framework* const named = framework_of(target);
  const frameworks::Framework* const planned = frameworks::find_framework(plan.layout.execution->framework);
  const bool shares = named != nullptr && planned != nullptr && name != target.name &&
                      !named->trial.script.empty() && named->trial.script == planned->trial.script;
  return shares ? *frameworks::export_target_of(planned->name) : target;
}

// A note for a plan that was priced for another framework. It is empty for the same framework, and for
// launchers, which start any framework.
std::string mismatch(const frameworks::ExportTarget& target, const Plan& plan) {
  const std::string& framework = plan.layout.execution->framework;
  if (frameworks::takes_plans_of(target, framework)) return "";
  return fmt::format("step time and memory are those of {}, not of {}: mpt-plan --framework {} plans for it",
                     framework, target.name, target.name);
}

// How to get a plan that the target runs. There is none for a model that the target lacks.
std::string other_plan(const frameworks::ExportTarget& target, const Plan& plan) {
  const frameworks::Framework* framework = framework_of(target);
  if (framework == nullptr) return "change what is named, and plan again";
  if (frameworks::supports_model(*framework, plan.model, plan.layout.precision) ||
      frameworks::supports_training(*framework, plan.layout.training))
    return "no plan of this model and way to train would run there";
  return fmt::format("mpt-plan --framework {} plans for what it can", target.name);
}

// Throws UserError for a model that runs in the framework but that MPT does not write yet.
void check_written(const frameworks::ExportTarget& target, const Plan& plan) {
  const frameworks::Framework* const framework = framework_of(target);
  if (framework == nullptr) return;
  const ModelVerdict verdict = frameworks::verdict_on(*framework, plan.model, plan.layout.training);
  if (verdict.verdict != VerdictKind::not_written) return;
  std::string remedy = "write its files by hand: mpt-plan explain says what the plan is";
  for (const std::string& name :
       frameworks::frameworks_that_train(plan.model, plan.layout.training, plan.layout.precision)) {
    const frameworks::Framework& other = *frameworks::find_framework(name);
    if (frameworks::export_target_of(name) == nullptr ||
        frameworks::verdict_on(other, frameworks::trained_by(other, plan.model), plan.layout.training)
                .verdict != VerdictKind::exported)
      continue;
    remedy = "plan with --framework " + name;
    break;
  }
  refuse_input("--to " + framework->name, verdict.reason, "a framework for which MPT writes it", remedy);
}

// Adds note and needs as comments at the top of a file, if its format has comments.
std::string with_comment(const frameworks::ExportedFile& file, const ExportedPlan& plan) {
  static const std::vector<std::string> kCommented{".sh", ".py", ".toml", ".yaml", ".sbatch"};
  const bool commented = any_of(kCommented, [&](const auto& ending) { return file.name.ends_with(ending); });
  if (!commented) return file.text;
  std::string comment = plan.note.empty() ? "" : "# Note: " + plan.note + ".\n";
  for (const std::string& need : plan.needs) comment += "# Needs: " + need + ".\n";
  const size_t at = file.text.starts_with("#!") ? file.text.find('\n') + 1 : 0;
  return file.text.substr(0, at) + comment + file.text.substr(at);
}

void make_folder(const std::string& folder) {
  std::error_code error = make_folders(folder);
  if (!error && std::filesystem::is_directory(folder, error)) return;
  refuse_input("-o " + folder, error ? error.message() : "not a folder", "a folder to write to");
}

// A file in the folder lists the files that exports wrote there: a line with digest and name for each.
constexpr std::string_view kListHead = "# Digests of the files that mpt-plan export wrote here\n";

std::string list_line(const std::string& name, const std::string& text) {
  return text_digest(text) + " " + name + "\n";
}

// Text of a file that an export may have written, or empty. An output, so no reader of base/ opens it.
std::string text_of(const std::filesystem::path& file) {
  constexpr uintmax_t kMost = uintmax_t{64} << 20;
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error) || std::filesystem::file_size(file, error) > kMost)
    return "";
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Adds the new list. Throws UserError with every file that would be lost: its content is neither from an
// earlier export nor equal to the new one.
void check_own_files(const std::filesystem::path& folder, std::map<std::string, std::string>& texts) {
  const std::string list = text_of(folder / kExportList);
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
  keep(kExportList, list.starts_with(kListHead));
  for (const auto& [name, text] : texts) {
    const std::string there = text_of(folder / name);
    keep(name, there == text || list.find("\n" + list_line(name, there)) != std::string::npos);
    after += list_line(name, text);
  }
  if (!problems.empty()) throw UserError(std::move(problems));
  std::istringstream lines(list);
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("#") && texts.count(line.substr(line.find(' ') + 1)) == 0) after += line + "\n";
  texts[kExportList] = after;
}

ExportedPlan exported_plan(const frameworks::ExportTarget& target, const Plan& plan) {
  check_written(target, plan);
  frameworks::Exported written = target.write(plan);
  ExportedPlan all{&target, mismatch(target, plan), std::move(written.files), std::move(written.needs),
                   std::move(written.warnings)};
  for (const std::string& note : plan.notes)
    if (note.find(kBeyondPositions) < note.size()) all.needs.push_back(note.substr(0, note.size() - 1));
  const std::string packages = frameworks::kernel_packages(plan);
  if (!packages.empty()) all.needs.push_back(packages + ": without them layers keep more");
  const auto rejection = frameworks::cannot_run(target, plan);
  const bool runs = !rejection || rejection->constraint == "objective";
  if (rejection && runs) all.note += (all.note.empty() ? "" : "; ") + rejection->reason;
  for (frameworks::ExportedFile& file : all.files) file.text = with_comment(file, all);
  if (!runs && !contains(all.warnings, rejection->reason))
    all.warnings.insert(all.warnings.begin(), rejection->reason);
  return all;
}

}  // namespace

std::vector<ExportedPlan> exported_plans(const std::vector<std::string>& to, const Plan& plan, bool force) {
  std::vector<ExportedPlan> all;
  std::vector<Problem> problems;
  for (const std::string& name : to) {
    const ExportedPlan& one = all.emplace_back(exported_plan(target_of(name, plan), plan));
    if (one.warnings.empty() || force) continue;
    problems.push_back(
        {"--to " + name, joined(one.warnings, "; "), "a plan that it trains as planned",
         other_plan(*one.target, plan) + "; --force (in Python force=True) writes the files all the same"});
  }
  if (!problems.empty()) throw UserError(std::move(problems));
  return all;
}

void write_exported(const std::vector<ExportedPlan>& all, const std::filesystem::path& folder) {
  std::map<std::string, std::string> texts;
  for (const ExportedPlan& one : all)
    for (const frameworks::ExportedFile& file : one.files) {
      const auto [known, is_new] = texts.try_emplace(file.name, file.text);
      if (!is_new && known->second != file.text)
        refuse_input("-o " + (folder / file.name).string(), "two exports write it",
                     "one export for each file", "export to two folders");
    }
  check_own_files(folder, texts);
  make_folder(folder.string());
  using std::filesystem::perms;
  for (const ExportedPlan& one : all)
    for (const frameworks::ExportedFile& file : one.files) {
      write_file_atomically(folder / file.name, file.text);
      if (file.executable)
        std::filesystem::permissions(folder / file.name,
                                     perms::owner_exec | perms::group_exec | perms::others_exec,
                                     std::filesystem::perm_options::add);
    }
  write_file_atomically(folder / kExportList, texts[kExportList]);
}

}  // namespace mpt::planner
