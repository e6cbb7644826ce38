// SPDX-License-Identifier: Apache-2.0

// What starts the ranks: a Slurm batch file, a hostfile, a Kubernetes Job. The command itself is the user's.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "frameworks/export.h"
#include "frameworks/registry.h"

namespace mpt::frameworks {
namespace {

void warn_of_half_nodes(const Plan& plan, std::vector<std::string>& warnings) {
  if (plan.layout.ranks() % ranks_per_node(plan) != 0)
    warnings.emplace_back("the ranks do not fill their nodes: start fewer processes on the last one");
  if (plan.cluster.mixed())
    warnings.emplace_back("groups of different devices: name the nodes in the order of the plan's cluster");
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

}  // namespace

Exported export_slurm(const Plan& plan) {
  Exported exported;
  warn_of_half_nodes(plan, exported.warnings);
  exported.files.push_back(
      {"job.sbatch", fmt::format(R"text(#!/usr/bin/env bash
# {}
# Usage: sbatch job.sbatch PROGRAM ARGUMENTS..., for example with what --to megatron wrote:
#   sbatch job.sbatch pretrain_gpt.py $(cat megatron_args.txt) --mock-data ...
#SBATCH --job-name={}
#SBATCH --nodes={}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={}
#SBATCH --exclusive
set -euo pipefail
[ $# -gt 0 ] || {{ echo "job.sbatch: which program?" >&2; exit 2; }}
master=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nproc-per-node {} --nnodes {} \
  --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$master:29500" "$@"
)text",
                                 export_title(plan), object_name(plan.model.name), node_count(plan),
                                 ranks_per_node(plan), ranks_per_node(plan), node_count(plan))});
  return exported;
}

Exported export_hostfile(const Plan& plan) {
  Exported exported;
  warn_of_half_nodes(plan, exported.warnings);
  std::string text =
      "# " + export_title(plan) + "\n# Put your hosts' names here, in the order of the plan's ranks.\n";
  int64_t left = plan.layout.ranks();
  for (int64_t node = 0; left > 0; ++node, left -= ranks_per_node(plan))
    text += fmt::format("node{} slots={}\n", node, std::min(left, ranks_per_node(plan)));
  exported.files.push_back({"hostfile", text});
  return exported;
}

Exported export_kubernetes(const Plan& plan) {
  Exported exported;
  warn_of_half_nodes(plan, exported.warnings);
  exported.warnings.emplace_back("set the image and the command; the GPUs' resource name is NVIDIA's");
  const std::string name = object_name(plan.model.name);
  exported.files.push_back(
      {"job.yaml", fmt::format(R"text(# {0}
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
            - exec torchrun --nproc-per-node {3} --nnodes {2} --node-rank "$JOB_COMPLETION_INDEX" --master-addr {1}-0.{1} --master-port 29500 PROGRAM
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
                               export_title(plan), name, node_count(plan), ranks_per_node(plan))});
  return exported;
}

}  // namespace mpt::frameworks
