// SPDX-License-Identifier: Apache-2.0

// mpt-plan import: a layout that runs elsewhere becomes a plan, is priced, and is compared with the best.

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "frameworks/framework.h"
#include "frameworks/registry.h"
#include "planner/commands/commands.h"
#include "planner/recipes/imported_request.h"

namespace mpt::planner {
namespace {

struct ImportOptions {
  std::string file, from, configuration;
  PlanOptions problem;
};

frameworks::Imported read_configuration(const frameworks::FrameworkCode& code, const ImportOptions& o) {
  const frameworks::Importer& importer = code.importer;
  if (o.configuration.empty()) return importer.read(o.file);
  if (importer.read_part == nullptr)
    throw UserError(Problem{"--config", fmt::format("\"{}\" of {}", cut_text(o.configuration, 40), o.file),
                            "a file that holds several configurations", "leave it out"});
  return importer.read_part(o.file, o.configuration);
}

}  // namespace

void declare_check(CLI::App& command, PlanOptions& o) {
  command
      .add_flag("--check", o.check,
                "End with exit code 1 where the layout does not fit or cannot run, 4 where it may not fit")
      ->group("Output");
}

void declare_measured(CLI::App& command, PlanOptions& o) {
  command.add_option("--measured", o.measured,
                     "What a run of it reached, to be judged: 18.7s, 380TFLOP/s (per GPU), 56000tokens/s, "
                     "7000tokens/s/GPU or \"MFU 41%\"");
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
  command->add_option("file", o->file, fmt::format("{}", fmt::join(files, ", or ")))->required();
  command
      ->add_option("--from", o->from,
                   fmt::format("{} (default: by the file's ending)", fmt::join(names, " or ")))
      ->type_name("NAME");
  command
      ->add_option("--config", o->configuration,
                   "Which configuration of a file that holds several, as torchtitan's do (default: the last)")
      ->type_name("NAME");
  declare_problem(*command, o->problem.request);
  declare_check(*command, o->problem);
  declare_measured(*command, o->problem);
  declare_outputs(*command, o->problem.out);
  declare_cost(*command, o->problem.cost);
  command->footer(
      "Examples:\n  mpt-plan import pretrain.sh --cluster dgx-h100:8\n"
      "  mpt-plan import train.toml --cluster dgx-h100 --gpus 64 -o mine.json");
  return [o] {
    if (o->problem.request.cluster.empty())
      throw UserError(Problem{"--cluster", "missing", "where it runs, such as dgx-h100:8", "see --help"});
    const frameworks::FrameworkCode& code = frameworks::find_importer(o->from, o->file);
    frameworks::Imported in = read_configuration(code, *o);
    if (o->problem.request.sequence > 0) std::erase(in.notes, in.length_note);
    if (!in.unknown.empty())
      in.notes.push_back(fmt::format("not known, and not taken over: {}",
                                     cut_text(fmt::format("{}", fmt::join(in.unknown, ", ")), 400)));
    if (in.refused)
      in.notes.push_back(fmt::format("{}, expected {}", in.refused->found, in.refused->expected));
    print_notes(in.notes);
    PlanOptions options = o->problem;
    options.request = imported_request(in, options.request,
                                       o->configuration.empty() ? o->file : o->configuration, code.framework);
    return score(options, true);
  };
}

}  // namespace mpt::planner
