// SPDX-License-Identifier: Apache-2.0

// mpt-plan import: a layout that runs elsewhere becomes a plan, is priced, and is compared with the best.

#include "planner/import/import.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.h"
#include "planner/commands/commands.h"
#include "planner/imported_request.h"

namespace mpt::planner {
namespace {

struct ImportOptions {
  std::string file, from;
  PlanOptions problem;
};

bool is_torchtitan(const ImportOptions& o) {
  return o.from.empty() ? o.file.ends_with(".toml") : o.from == "torchtitan";
}

}  // namespace

void declare_measured(CLI::App& command, PlanOptions& o) {
  command.add_option("--measured", o.measured,
                     "What a run of it reached, to be judged: 18.7s, 380TFLOP/s (per GPU), 56000tokens/s or "
                     "7000tokens/s/GPU");
}

std::function<int()> add_import(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "import", "Score a layout that runs in Megatron-LM or torchtitan, and see what would be better");
  auto o = std::make_shared<ImportOptions>();
  command->add_option("file", o->file, "Megatron-LM arguments or script, or torchtitan's TOML")->required();
  command->add_option("--from", o->from, "megatron or torchtitan (default: by the file's ending)")
      ->check(CLI::IsMember({"megatron", "torchtitan"}))
      ->type_name("NAME");
  declare_problem(*command, o->problem.request);
  declare_measured(*command, o->problem);
  declare_outputs(*command, o->problem.out);
  declare_cost(*command, o->problem.cost);
  command->footer(
      "Examples:\n  mpt-plan import pretrain.sh --cluster dgx-h100:8\n"
      "  mpt-plan import train.toml --cluster dgx-h100 --gpus 64 -o mine.json");
  return [o] {
    std::vector<NamedFile> inputs = input_files(o->problem);
    inputs.push_back({"file", o->file});
    check_outputs(o->problem.out, inputs);
    if (o->problem.request.cluster.empty())
      throw UserError(Problem{"--cluster", "missing", "where it runs, such as dgx-h100:8", "see --help"});
    const bool titan = is_torchtitan(*o);
    const Imported in = titan ? import_torchtitan(o->file) : import_megatron(o->file);
    print_notes(in.notes);
    PlanOptions options = o->problem;
    options.request = imported_request(in, options.request, o->file, titan ? "torchtitan" : "megatron-core");
    score(options, true);
    return kExitOk;
  };
}

}  // namespace mpt::planner
