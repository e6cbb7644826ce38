// SPDX-License-Identifier: Apache-2.0

// mpt-plan import: a layout that runs elsewhere becomes a plan, is priced, and is compared with the best.

#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "frameworks/registry.h"
#include "planner/commands/commands.h"
#include "planner/recipes/recipes.h"

namespace mpt::planner {
namespace {

struct ImportOptions {
  std::string file, from, configuration, root;
  bool captured = false;
  PlanOptions problem;
};

// The output of python -m mpt.capture: the configuration that a framework parsed, as files for its importer.
struct Captured {
#include "generated/Captured.inc"
};

// Writes the files to a temporary folder, which exists until they have been read.
class UnpackedFiles {
 public:
  explicit UnpackedFiles(const Json& files) {
    if (mkdtemp(folder_.data()) == nullptr) throw RunError(folder_ + " cannot be made");
    for (const auto& [name, content] : files.items())
      write_file_atomically(path_of(name), content.is_string() ? content.get<std::string>() : content.dump());
  }
  UnpackedFiles& operator=(UnpackedFiles&&) = delete;
  ~UnpackedFiles() {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }
  std::filesystem::path path_of(const std::string& name) const {
    return std::filesystem::path(folder_) / std::filesystem::path(name).filename();
  }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_ = (std::filesystem::temp_directory_path() / ("mpt-captured-" + std::string(6, 'X')))
                            .string();  // for mkdtemp()
};

// `also`: another folder that may be read.
void keep_below_root(ImportOptions& o, const std::string& also) {
  files_of_program().reads(o.file);
  if (!o.root.empty()) keep_below({o.root, also}, o.problem.request);
}

frameworks::Imported read_captured(ImportOptions& o) {
  const auto captured = from_json<Captured>(load_json(o.file, 2 * frameworks::kMostImportedBytes), o.file);
  if (!captured.files.is_object() || !captured.files.contains(captured.reads))
    refuse_input(o.file, "no captured file", "what python -m mpt.capture writes");
  const UnpackedFiles files(captured.files);
  if (o.problem.request.gpus == 0) o.problem.request.gpus = captured.ranks;
  o.from = captured.framework;
  keep_below_root(o, files.folder());
  try {
    return frameworks::find_importer(o.from, o.file).importer.read(files.path_of(captured.reads));
  } catch (const UserError& error) {
    std::vector<Problem> problems = error.problems();
    for (Problem& problem : problems)
      if (problem.where.starts_with(files.folder()))
        problem.where.replace(0, files.folder().size() + 1, o.file + ", ");
    throw UserError(std::move(problems));
  }
}

frameworks::Imported read_configuration(ImportOptions& o) {
  keep_below_root(o, o.root);
  const frameworks::Importer& importer = frameworks::find_importer(o.from, o.file).importer;
  if (o.configuration.empty()) return importer.read(o.file);
  if (importer.read_part == nullptr)
    refuse_input("--config", fmt::format("\"{}\" of {}", cut_text(o.configuration, 40), o.file),
                 "a file that holds several configurations", "leave it out");
  return importer.read_part(o.file, o.configuration);
}

}  // namespace

void declare_judged(CLI::App& command, PlanOptions& o){
#include "generated/JudgedOptions.inc"
}

std::function<int()> add_import(CLI::App& app) {
  std::vector<std::string> names, files;
  for (const frameworks::FrameworkCode& code : frameworks::framework_code()) {
    if (code.importer.read == nullptr) continue;
    names.emplace_back(code.framework);
    files.emplace_back(code.files().imported);
  }
  CLI::App* command =
      app.add_subcommand("import", "Score a layout that runs in a framework, and see what would be better");
  auto o = std::make_shared<ImportOptions>();
#include "generated/ImportOptions.inc"
  declare_problem(*command, o->problem.request);
  declare_judged(*command, o->problem);
  declare_outputs(*command, o->problem.out);
  declare_cost(*command, o->problem.cost);
  return [o] {
    if (o->problem.request.cluster.empty())
      refuse_input("--cluster", "missing", "where it runs, such as dgx-h100:8", "see --help");
    frameworks::Imported in = o->captured ? read_captured(*o) : read_configuration(*o);
    const frameworks::FrameworkCode& code = frameworks::find_importer(o->from, o->file);
    if (o->problem.request.sequence > 0) std::erase(in.notes, in.length_note);
    if (!in.unknown.empty())
      in.notes.push_back(
          fmt::format("not priced, or not known: {}", cut_text(joined(in.unknown, ", "), 400)));
    if (const auto& r = in.refused) in.notes.push_back(fmt::format("{}, expected {}", r->found, r->expected));
    print_notes(in.notes);
    PlanOptions options = o->problem;
    options.request = imported_request(in, options.request,
                                       o->configuration.empty() ? o->file : o->configuration, code.framework);
    return score(options, true);
  };
}

}  // namespace mpt::planner
