// SPDX-License-Identifier: Apache-2.0

// mpt-plan import: a layout that runs elsewhere becomes a plan, is priced, and is compared with the best.

#include "planner/import/import.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/quantity.h"
#include "models/framework.h"
#include "models/parameter_count.h"
#include "models/zoo.h"
#include "planner/commands/commands.h"
#include "profiler/hardware/catalog.h"

namespace mpt::planner {
namespace {

struct ImportOptions {
  std::string file, from;
  PlanOptions problem;
};

bool is_torchtitan(const ImportOptions& o) {
  return o.from.empty() ? o.file.ends_with(".toml") : o.from == "torchtitan";
}

// Files of arguments name no model: theirs is called after the file and its size, "my_run-70.6B".
std::string name_of_sizes(const ImportOptions& o, const ModelSpec& model) {
  const std::string stem = std::filesystem::path(o.file).stem().string();
  return fmt::format("{}-{}", stem, format_magnitude(double(models::count_parameters(model).total)));
}

// What the file leaves open follows from the cluster and the options.
Plan complete(const ImportOptions& o, Imported in) {
  Plan plan;
  if (!o.problem.model.empty()) in.model = models::load_model(o.problem.model);
  for (const std::string& note : in.notes) fmt::print(stderr, "mpt-plan: note: {}\n", printable(note));
  if (!in.model)
    throw UserError(Problem{"--model", "missing", "the file's model is not known here", "see --help"});
  plan.model = *in.model;
  if (plan.model.name == "imported") plan.model.name = name_of_sizes(o, plan.model);
  plan.cluster = profiler::load_cluster(o.problem.cluster, {}, o.problem.ranks);
  Layout& l = in.layout;
  const int64_t ranks = o.problem.ranks > 0 ? o.problem.ranks : plan.cluster.devices;
  if (l.data == 0) l.data = std::max<int64_t>(1, ranks / (l.tensor * l.context * l.pipeline));
  l.shard = l.zero == 0 ? 1 : std::max<int64_t>(1, l.replicas() / in.shard_groups);
  if (!plan.model.moe) {
    l.expert = 1;
    l.expert_tensor = 0;
    l.overlap_exchange = false;
  }
  if (l.layers_per_stage.empty()) {
    check_stages(l, plan.model, o.file);
    l.layers_per_stage = even_stages(plan.model.layers, l.stages());
  }
  l.execution = models::load_framework(is_torchtitan(o) ? "torchtitan" : "megatron-core", "--from");
  models::set_device(l.execution, plan.cluster.device);
  if (in.deduplicates_dispatch) models::send_tokens_once(l.execution);
  l.execution.fp8_head = in.fp8_head;
  if (in.vocabulary_multiple) l.execution.vocabulary_multiple = *in.vocabulary_multiple;
  plan.workload = in.workload;
  if (o.problem.global_batch > 0) plan.workload.global_batch = o.problem.global_batch;
  if (plan.workload.global_batch == 0) plan.workload.global_batch = l.micro_batch * l.data;
  plan.layout = l;
  in.layout = l;
  in.workload = plan.workload;
  check_imported(in, o.file);
  return plan;
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
  declare_problem(*command, o->problem);
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
    if (o->problem.cluster.empty())
      throw UserError(Problem{"--cluster", "missing", "where it runs, such as dgx-h100:8", "see --help"});
    const Plan given =
        complete(*o, is_torchtitan(*o) ? import_torchtitan(o->file) : import_megatron(o->file));
    score(o->problem, &given);
    return kExitOk;
  };
}

}  // namespace mpt::planner
