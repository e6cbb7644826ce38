// SPDX-License-Identifier: Apache-2.0

// What starts the ranks: a Slurm batch file, a Kubernetes Job. The command itself is the user's.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "frameworks/export.h"
#include "frameworks/registry.h"

namespace mpt::frameworks {
namespace {

// A comment of what to know of the nodes.
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

// What each node runs. The last one may have fewer ranks than the others.
std::string slurm_command(const Plan& plan) {
  const std::string torchrun = fmt::format(
      "torchrun --nproc-per-node {} --nnodes {} \\\n  --rdzv-backend c10d --rdzv-id \"$SLURM_JOB_ID\" "
      "--rdzv-endpoint "
      "\"$MASTER_ADDR:$MASTER_PORT\" \"$@\"",
      processes_word(plan), node_count(plan));
  const std::string processes = processes_of_node(plan, "$SLURM_NODEID");
  if (processes.empty()) return "srun " + torchrun + "\n";
  return "# shellcheck disable=SC2016 # each node puts in its own values\nsrun bash -c '" + processes +
         "exec " + torchrun + "' bash \"$@\"\n";
}

// On one line, as YAML takes it without marks.
std::string kubernetes_command(const Plan& plan) {
  std::string processes = processes_of_node(plan, "$JOB_COMPLETION_INDEX");
  std::replace(processes.begin(), processes.end(), '\n', ';');
  if (!processes.empty()) processes += ' ';
  return fmt::format(
      "{}exec torchrun --nproc-per-node {} --nnodes {} --node-rank \"$JOB_COMPLETION_INDEX\" "
      "--master-addr \"$MASTER_ADDR\" --master-port 29500 PROGRAM",
      processes, processes_word(plan), node_count(plan));
}

}  // namespace

Exported export_slurm(const Plan& plan) {
  Exported exported;
  exported.files.push_back(
      {"job.sbatch", fmt::format(R"text(#!/usr/bin/env bash
# {0}
{1}# Usage: sbatch job.sbatch PROGRAM ARGUMENTS... A script, such as run_megatron.sh, starts torchrun itself:
#   sbatch job.sbatch run_megatron.sh --mock-data ...
#SBATCH --job-name={2}
#SBATCH --nodes={3}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={4}
#SBATCH --exclusive
set -euo pipefail
[ $# -gt 0 ] || {{ echo "job.sbatch: which program?" >&2; exit 2; }}
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
export MASTER_ADDR MASTER_PORT=29500
case "$1" in *.sh) exec srun bash "$@" ;; esac
{5})text",
                                 export_title(plan), nodes_text(plan), object_name(plan.model.name),
                                 node_count(plan), ranks_per_node(plan), slurm_command(plan))});
  return exported;
}

Exported export_kubernetes(const Plan& plan) {
  Exported exported;
  const std::string name = object_name(plan.model.name);
  exported.files.push_back(
      {"job.yaml", fmt::format(R"text(# {0}
{4}# Put in your IMAGE and PROGRAM. nvidia.com/gpu is the name of NVIDIA's GPUs. A script that starts torchrun itself,
# such as run_megatron.sh, takes the place of the command: args: [exec bash run_megatron.sh ...].
apiVersion: v1
kind: Service
metadata:
  name: {1}
spec:
  clusterIP: None
  selector:
    job-name: {1}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {1}
spec:
  completionMode: Indexed
  completions: {2}
  parallelism: {2}
  backoffLimit: 0
  template:
    spec:
      subdomain: {1}
      restartPolicy: Never
      containers:
        - name: ranks
          image: IMAGE
          command: ["/bin/sh", "-c"]
          args:
            - {5}
          env:
            - name: MASTER_ADDR
              value: {1}-0.{1}
          resources:
            limits:
              nvidia.com/gpu: {3}
          volumeMounts:
            - name: shared-memory
              mountPath: /dev/shm
      volumes:
        - name: shared-memory
          emptyDir:
            medium: Memory
)text",
                               export_title(plan), name, node_count(plan), ranks_per_node(plan),
                               nodes_text(plan), kubernetes_command(plan))});
  return exported;
}

}  // namespace mpt::frameworks
