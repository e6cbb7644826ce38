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

struct FileToWrite {
  std::filesystem::path path;
  std::string text;
  bool executable = false;
};

// The text of a file in the export's folder, which is an output. Nothing where it is no file that an export
// can have written.
std::optional<std::string> text_of(const std::filesystem::path& file) {
  constexpr uintmax_t kMost = uintmax_t{64} << 20;
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error) || std::filesystem::file_size(file, error) > kMost)
    return std::nullopt;
  std::ifstream in(file, std::ios::binary);
  return std::string{std::istreambuf_iterator<char>(in), {}};
}

// What exports wrote into a folder: a file in it has a line with digest and name for each. A file whose text
// has another digest is somebody's own, or was edited.
class Written {
 public:
  // Throws UserError if the file is there and no export wrote it.
  explicit Written(const std::filesystem::path& folder) : file_(folder / ".mpt-export") {
    std::error_code error;
    if (!std::filesystem::exists(file_, error)) return;
    std::istringstream lines(text_of(file_).value_or(""));
    std::string head;
    std::getline(lines, head);
    if (head != kHead) throw UserError(foreign(file_));
    for (std::string digest, name; lines >> digest && std::getline(lines >> std::ws, name);)
      digests_[name] = digest;
  }
  // Throws UserError with every file that would be lost.
  void check(const std::vector<FileToWrite>& files) const {
    std::vector<Problem> problems;
    for (const FileToWrite& file : files) {
      std::error_code error;
      if (!std::filesystem::exists(file.path, error)) continue;
      const auto text = text_of(file.path);
      const auto own = digests_.find(file.path.filename().string());
      if (text == file.text || (text && own != digests_.end() && own->second == text_digest(*text))) continue;
      problems.push_back(foreign(file.path));
    }
    if (!problems.empty()) throw UserError(std::move(problems));
  }
  const std::filesystem::path& file() const { return file_; }
  void add(const FileToWrite& file) { digests_[file.path.filename().string()] = text_digest(file.text); }
  void save() const {
    std::string text = std::string(kHead) + "\n";
    for (const auto& [name, digest] : digests_) text += digest + " " + name + "\n";
    write_file_atomically(file_, text);
  }

 private:
  static constexpr std::string_view kHead = "# Digests of the files that mpt-plan export wrote here";
  static Problem foreign(const std::filesystem::path& file) {
    return {"-o " + file.string(), "is there already, and is not as mpt-plan export wrote it",
            "no file of this name, or that of an earlier export",
            "name another folder with -o, or rename the file; nothing was written"};
  }

  std::filesystem::path file_;
  std::map<std::string, std::string> digests_;  // by name
};

void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && std::filesystem::is_directory(folder, error)) return;
  throw UserError(
      Problem{"-o " + folder, error ? error.message() : "not a folder", "a folder to write to", ""});
}

// What one target writes, and what to say of it.
struct TargetFiles {
  const frameworks::ExportTarget* target;
  std::string note;
  std::vector<std::string> warnings;
  std::vector<FileToWrite> files;
};

TargetFiles files_for(const frameworks::ExportTarget& target, const Plan& plan, const std::string& folder) {
  frameworks::Exported exported = target.write(plan);
  TargetFiles out{&target, mismatch(target, plan), std::move(exported.warnings), {}};
  for (const frameworks::ExportedFile& file : exported.files)
    out.files.push_back(
        {std::filesystem::path(folder) / file.name, with_comment(file, out.note), file.executable});
  return out;
}

// Two frameworks may want one file, such as a model's config.json. Throws UserError where its text differs,
// or where something would be lost.
void declare_files(const std::vector<TargetFiles>& targets, const Written& written) {
  std::map<std::filesystem::path, std::string> texts;
  for (const TargetFiles& target : targets) {
    for (const FileToWrite& file : target.files) {
      const auto [known, is_new] = texts.try_emplace(file.path, file.text);
      if (is_new || known->second != file.text) files_of_program().writes({"-o", file.path});
    }
  }
  files_of_program().writes({"-o", written.file()});
  for (const TargetFiles& target : targets) written.check(target.files);
}

void write_and_tell(const FileToWrite& file) {
  write_file_atomically(file.path, file.text);
  using std::filesystem::perms;
  if (file.executable)
    std::filesystem::permissions(file.path, perms::owner_exec | perms::group_exec | perms::others_exec,
                                 std::filesystem::perm_options::add);
  fmt::print("  wrote {}\n", file.path.string());
}

void run(const ExportOptions& o) {
  std::vector<const frameworks::ExportTarget*> targets;
  for (const std::string& name : o.to) targets.push_back(&frameworks::find_export_target(name));
  const Plan plan = load_plan(o.plan);
  std::vector<TargetFiles> all;
  for (const frameworks::ExportTarget* target : targets) all.push_back(files_for(*target, plan, o.folder));
  Written written(o.folder);
  declare_files(all, written);
  make_folder(o.folder);
  fmt::print("Predicted {} per step in {}, by {}\n", format_seconds(plan.prediction.step_time_s),
             enum_name(plan.layout.precision), plan.layout.execution.framework);
  for (const TargetFiles& target : all) {
    fmt::print("{}: {}\n", target.target->name, target.target->what);
    if (!target.note.empty()) fmt::print("  note: {}\n", target.note);
    for (const FileToWrite& file : target.files) {
      write_and_tell(file);
      written.add(file);
    }
    written.save();
    if (const auto rejection = frameworks::cannot_run(*target.target, plan))
      fmt::print("  warning: {}{}\n", rejection->reason, other_plan(*target.target, plan));
    for (const std::string& warning : target.warnings) fmt::print("  warning: {}\n", warning);
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
