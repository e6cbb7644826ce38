// SPDX-License-Identifier: Apache-2.0
#include "planner/export/export.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/quantity.h"
#include "models/footprint.h"
#include "models/framework.h"

namespace mpt::planner {

const std::vector<ExportTarget>& export_targets() {
  static const std::vector<ExportTarget> targets{
      {"megatron", "Megatron-LM core 0.15: arguments and a launch script", export_megatron},
      {"megatron-bridge", "Megatron-Bridge 0.6: a function that changes a recipe's configuration",
       export_megatron_bridge},
      {"torchtitan", "torchtitan 0.2.2: configuration, and the schedule as PyTorch's CSV", export_torchtitan},
      {"deepspeed", "DeepSpeed 0.19: configuration", export_deepspeed},
      {"fsdp2", "PyTorch 2.9: device mesh and fully_shard", export_fsdp2},
      {"slurm", "Slurm batch file that starts torchrun on every node", export_slurm},
      {"hostfile", "hosts and their slots, for mpirun and DeepSpeed", export_hostfile},
      {"kubernetes", "Kubernetes indexed Job that starts torchrun in every pod", export_kubernetes},
  };
  return targets;
}

const ExportTarget& find_export_target(const std::string& name) {
  // A framework may go by the name that --framework has for it.
  const models::FrameworkName* framework = models::find_framework_name(name);
  std::vector<std::string> names;
  for (const ExportTarget& target : export_targets()) {
    if (target.name == name) return target;
    names.emplace_back(target.name);
  }
  for (const ExportTarget& target : export_targets()) {
    if (framework != nullptr && framework->export_target == target.name) return target;
  }
  throw UserError(Problem{"--to", fmt::format("\"{}\"{}", name.substr(0, 40), did_you_mean(name, names)),
                          fmt::format("one of {}", fmt::join(names, ", ")), ""});
}

int64_t sharing_data_ranks(const Layout& layout) {
  return std::max<int64_t>(1, models::dense_shard(layout) / layout.context);
}

bool stages_are_even(const Layout& layout) {
  const auto& layers = layout.layers_per_stage;
  return std::all_of(layers.begin(), layers.end(), [&](int64_t n) { return n == layers.front(); });
}

bool attention_in_fp8(const Layout& l) { return is_narrow(l.precision) && l.execution.fp8_attention; }
bool head_in_fp8(const Layout& l) { return is_narrow(l.precision) && l.execution.fp8_head; }

int64_t ranks_per_node(const Plan& plan) {
  return std::min(plan.cluster.devices_per_node, plan.layout.ranks());
}

int64_t node_count(const Plan& plan) {
  const int64_t per_node = ranks_per_node(plan);
  return (plan.layout.ranks() + per_node - 1) / per_node;
}

std::string export_title(const Plan& plan) {
  std::string title =
      fmt::format("{} on {}: {}, {} ranks, predicted {} per step", plan.model.name, plan.cluster.name,
                  layout_name(plan.layout), plan.layout.ranks(), format_seconds(plan.prediction.step_time_s));
  const auto is_unsafe = [](char c) { return c < ' ' || c > '~' || c == '"' || c == '\'' || c == '\\'; };
  std::replace_if(title.begin(), title.end(), is_unsafe, '?');
  return title;
}

}  // namespace mpt::planner
