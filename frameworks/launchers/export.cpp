// SPDX-License-Identifier: Apache-2.0

// Files that start the ranks: a Slurm batch file, a Kubernetes Job. The user fills in the command.

#include <set>

#include "frameworks/export.h"
#include "frameworks/registry.h"

namespace mpt::frameworks {
namespace {

// A comment about requirements of the nodes.
std::string nodes_text(const Plan& plan) {
  if (!plan.cluster.mixed()) return "";
  return "# " + comment_text("Name the nodes in this order of their GPUs: " + plan.cluster.name) + ".\n";
}

// Names of objects: lower-case letters, digits and hyphens, a letter first (RFC 1035).
std::string object_name(const std::string& text) {
  std::string name;
  for (const char c : text) name += std::isalnum(static_cast<unsigned char>(c)) ? char(std::tolower(c)) : '-';
  while (!name.empty() && name.front() == '-') name.erase(name.begin());
  name = name.substr(0, 40);
  while (!name.empty() && name.back() == '-') name.pop_back();
  // YAML reads some words as a truth value or as nothing.
  static const std::set<std::string> words{"y", "n", "yes", "no", "on", "off", "true", "false", "null"};
  if (name.empty()) return "plan";
  const bool plain = std::isalpha(static_cast<unsigned char>(name.front())) != 0 && !words.contains(name);
  return plain ? name : "plan-" + name;
}

// The command of each node. The last node may have fewer ranks than the others.
std::string slurm_command(const Plan& plan) {
  const std::string torchrun = fmt::format(
      "torchrun --nproc-per-node {} --nnodes {} \\\n  --rdzv-backend c10d --rdzv-id \"$SLURM_JOB_ID\" "
      "--rdzv-endpoint \"$MASTER_ADDR:$MASTER_PORT\" \"$@\"",
      processes_word(plan), node_count(plan));
  const std::string processes = processes_of_node(plan, "$SLURM_NODEID");
  if (processes.empty()) return "srun " + torchrun + "\n";
  return "# shellcheck disable=SC2016 # each node puts in its own values\nsrun bash -c '" + processes +
         "exec " + torchrun + "' bash \"$@\"\n";
}

// On one line, in a form that YAML reads without quotes.
std::string kubernetes_command(const Plan& plan) {
  std::string processes = processes_of_node(plan, "$JOB_COMPLETION_INDEX");
  std::replace(processes.begin(), processes.end(), '\n', ';');
  if (!processes.empty()) processes += ' ';
  return fmt::format(
      "{}exec torchrun --nproc-per-node {} --nnodes {} --node-rank \"$JOB_COMPLETION_INDEX\" "
      "--master-addr \"$MASTER_ADDR\" --master-port 29500 PROGRAM",
      processes, processes_word(plan), node_count(plan));
}

Exported job(const Plan& plan, const char* file, const std::string& command) {
  Exported exported;
  const std::string name = object_name(plan.model.name);
  add_filled(plan, file, {{"nodes_text", nodes_text(plan)}, {"name", name}, {"command", command}}, exported);
  return exported;
}

}  // namespace

Exported export_slurm(const Plan& plan) { return job(plan, "job.sbatch", slurm_command(plan)); }

Exported export_kubernetes(const Plan& plan) { return job(plan, "job.yaml", kubernetes_command(plan)); }

}  // namespace mpt::frameworks
