// SPDX-License-Identifier: Apache-2.0
#pragma once

// Export: a plan as files of frameworks and launchers. For a framework that supports the plan the files are
// complete. For any other the warnings name the losses. docs/exports.md names the source of each flag and
// key.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "core/plan.h"
#include "frameworks/supports/abilities.h"

namespace mpt::frameworks {

struct ExportedFile {
#include "generated/ExportedFile.inc"
};

struct Exported {
  std::vector<ExportedFile> files;
  std::vector<std::string> warnings;  // differences from the plan's training, or why it cannot run
  std::vector<std::string> needs;     // requirements other than the framework: packages, keys of the data
};

/// Adds the sentences of the rows with a true condition.
void add_sentences(std::initializer_list<std::pair<bool, const char*>> rows,
                   std::vector<std::string>& sentences);

/// Whether tuners train by the framework.
bool tuners_take(const std::string& framework);
/// Whether tuners' recipes express a feature that the Trainer's arguments do not.
bool tuners_write(const std::string& framework, TrainingFeature feature);
/// Why a tuner's recipe cannot express a plan that its framework runs; empty: it can.
std::string tuner_lacks(const std::string& tuner, const Plan& plan);

/// The parts that run in fp8 beyond the layers' products: attention, and the head.
bool attention_in_fp8(const Layout& layout);
bool head_in_fp8(const Layout& layout);
/// Data-parallel ranks that share weights or their state out, without context ranks: frameworks on PyTorch
/// include those by themselves.
int64_t sharing_data_ranks(const Layout& layout);
/// The actions of each pipeline rank in PyTorch's notation, such as "0F0,0F1": stage, then F forward, B
/// backward, I input gradient or W weight gradient, then micro-batch.
std::vector<std::string> schedule_lines(const Plan& plan, char separator);
/// The name of a schedule for get_schedule_class() of torch.distributed.pipelining; empty: it has no class.
std::string torch_class_of(const std::string& schedule);
/// The module names of each virtual stage in pipelines of PyTorch, such as "`layers`7".
struct StageNames {
  std::string embedding, layers, norm;
};
std::vector<std::vector<std::string>> stage_modules(const Plan& plan, const StageNames& names);
/// Nodes as launchers count them: each runs one operating system. An NVL72 has 18 of them.
int64_t node_count(const Plan& plan);
int64_t ranks_per_node(const Plan& plan);
/// "llama3-70b: tp4 pp2 ..., 64 ranks": the comment or docstring at the top of each file. It is one line of
/// ASCII without quotes and backslashes, whatever the names of model and cluster contain: so it cannot end a
/// string or comment of any language.
std::string export_title(const Plan& plan);
/// A sentence for a comment in any language: one line of ASCII without quotes and backslashes.
std::string comment_text(std::string text);

/// The command that runs `steps` steps on made-up data, with the files of the plan's framework in `folder`.
/// On several nodes it submits the exported Slurm job. Nothing if no exported script can run it.
struct TrialCommand {
  std::string command, where;  // where: ", " and the file or place it needs; may be empty
};
std::optional<TrialCommand> trial_command(const Plan& plan, const std::string& folder, int64_t steps);

/// A file of a framework's folder that exports merge or fill in (CMakeLists.txt).
std::string template_text(const std::string& name);
/// The template `name`.in with values in place of its @names@. Every template may use title, nodes,
/// ranks_per_node, processes and processes_of_node of the plan.
std::string filled(const std::string& name, const Plan& plan, std::map<std::string, std::string> values = {});

/// Adds the file from the template of that name; shell files are executable.
void add_filled(const Plan& plan, const std::string& name, std::map<std::string, std::string> values,
                Exported& exported);
/// Adds mpt_`name`_trial.py, and run_`name`_trial.sh, which starts it on every rank.
void add_trial(const Plan& plan, const char* software, const std::string& name,
               std::map<std::string, std::string> values, Exported& exported);

/// Processes of a node for torchrun's command line: a number, or "$processes" if the last node has fewer.
std::string processes_word(const Plan& plan);
/// Lines of a shell script that set "$processes" for node number `node`; none if all nodes have the same
/// number.
std::string processes_of_node(const Plan& plan, const std::string& node);

}  // namespace mpt::frameworks
