// SPDX-License-Identifier: Apache-2.0
#pragma once

// Export: a plan in the words of the frameworks and launchers that people run. What they cannot express is a
// warning, never left out in silence. docs/exports.md names the source of each flag and key.

#include <string>
#include <vector>

#include "core/plan.h"

namespace mpt::planner {

struct ExportedFile {
  std::string name;  // within the folder
  std::string text;
  bool executable = false;
};

struct Exported {
  std::vector<ExportedFile> files;
  std::vector<std::string> warnings;
};

struct ExportTarget {
  const char* name;
  const char* what;  // one line for people, with the framework's version
  Exported (*write)(const Plan& plan);
};

/// megatron, megatron-bridge, torchtitan, deepspeed, fsdp2, slurm, hostfile, kubernetes.
const std::vector<ExportTarget>& export_targets();
/// By its name, or by a framework's name or alias (models/framework_names.json). Throws UserError otherwise.
const ExportTarget& find_export_target(const std::string& name);

// The targets, one function each; not for callers.
Exported export_megatron(const Plan& plan);
Exported export_megatron_bridge(const Plan& plan);
Exported export_torchtitan(const Plan& plan);
Exported export_deepspeed(const Plan& plan);
Exported export_fsdp2(const Plan& plan);
Exported export_slurm(const Plan& plan);
Exported export_hostfile(const Plan& plan);
Exported export_kubernetes(const Plan& plan);

/// How Megatron-LM's recompute options say what the plan does; Megatron-Bridge has the same fields.
struct MegatronRecompute {
  std::string granularity, method;  // empty: none
  int64_t layers = 0;
  std::vector<std::string> modules;  // of selective recompute; none: what is usual, the attention core
};
MegatronRecompute megatron_recompute(const Plan& plan, std::vector<std::string>& warnings);
/// "Ettt|tttt|tttL": what each virtual stage holds, in model order.
std::string megatron_stages(const Plan& plan);
/// Adds what Megatron-LM and what builds on it cannot do: schedules, orders, groups of devices.
void add_megatron_warnings(const Plan& plan, std::vector<std::string>& warnings);

/// What else than the layers' products runs in fp8.
bool attention_in_fp8(const Layout& layout);
bool head_in_fp8(const Layout& layout);
/// Data-parallel ranks that share weights or their state out, context ranks not counted: frameworks on
/// PyTorch fold those in by themselves.
int64_t sharing_data_ranks(const Layout& layout);
/// Whether each stage holds as many layers as any other.
bool stages_are_even(const Layout& layout);
int64_t node_count(const Plan& plan);
int64_t ranks_per_node(const Plan& plan);
/// "llama3-70b: tp4 pp2 ..., 64 ranks": the comment or docstring at the top of each file. Whatever the names
/// of model and cluster hold, it is one line of ASCII without quotes and backslashes, so that no language
/// reads an end in it.
std::string export_title(const Plan& plan);

}  // namespace mpt::planner
