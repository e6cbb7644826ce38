// SPDX-License-Identifier: Apache-2.0
#pragma once

// Export: a plan in the words of the frameworks and launchers that people run. A plan that a framework
// supports is expressed whole; of any other the warnings say what is lost. docs/exports.md names the source
// of each flag and key.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/plan.h"
#include "frameworks/supports/abilities.h"

namespace mpt::frameworks {

struct ExportedFile {
  std::string name;  // within the folder
  std::string text;
  bool executable = false;
};

struct Exported {
  std::vector<ExportedFile> files;
  std::vector<std::string> warnings;  // where the files are another training than the plan, or cannot run
  std::vector<std::string> needs;     // what they take beside the framework: packages, keys of the data
};

/// The sentences of rows that hold.
void add_sentences(std::initializer_list<std::pair<bool, const char*>> rows,
                   std::vector<std::string>& sentences);

struct ExportTarget {
  const char* name;
  const char* what;  // one line for people, with the framework's version
  Exported (*write)(const Plan& plan);
  bool tuner = false;  // trains by Hugging Face's Trainer, and takes plans for that alone
};

/// The tuners that train by a framework.
bool tuners_take(const std::string& framework);
/// Whether tuners' recipes say what the Trainer's own arguments do not.
bool tuners_write(const std::string& framework, TrainingFeature feature);
/// Why a tuner's recipe cannot say a plan that its framework runs; empty: it can.
std::string tuner_lacks(const std::string& tuner, const Plan& plan);
/// Whose export NEXT names: of a plan's framework, or of a tuner where that alone writes the plan or was
/// asked for. Null: nobody writes it.
const ExportTarget* usual_target(const Plan& plan, const std::string& asked = "");

/// Frameworks with an export (frameworks/registry.h), then the launchers.
const std::vector<ExportTarget>& export_targets();
/// By its name, or by a framework's alias. Throws UserError otherwise.
const ExportTarget& find_export_target(const std::string& name);
/// The export of a framework by its name or alias; null where there is none.
const ExportTarget* export_target_of(const std::string& framework);
/// Whether step time and memory of plans for `framework` hold for the target, too: launchers start any.
bool takes_plans_of(const ExportTarget& target, const std::string& framework);

/// What else than the layers' products runs in fp8.
bool attention_in_fp8(const Layout& layout);
bool head_in_fp8(const Layout& layout);
/// Data-parallel ranks that share weights or their state out, context ranks not counted: frameworks on
/// PyTorch fold those in by themselves.
int64_t sharing_data_ranks(const Layout& layout);
/// The actions of each pipeline rank in PyTorch's words, such as "0F0,0F1": stage, then F forward, B
/// backward, I input gradient or W weight gradient, then micro-batch.
std::vector<std::string> schedule_lines(const Plan& plan, char separator);
/// What get_schedule_class() of torch.distributed.pipelining calls a schedule; empty: it has no class of it.
std::string torch_class_of(const std::string& schedule);
/// The modules of each virtual stage, as pipelines of PyTorch's name them: "`layers`7" and the like.
struct StageNames {
  std::string embedding, layers, norm;
};
std::vector<std::vector<std::string>> stage_modules(const Plan& plan, const StageNames& names);
/// Nodes as launchers see them: each runs one operating system. An NVL72 has 18 of them.
int64_t node_count(const Plan& plan);
int64_t ranks_per_node(const Plan& plan);
/// "llama3-70b: tp4 pp2 ..., 64 ranks": the comment or docstring at the top of each file. Whatever the names
/// of model and cluster hold, it is one line of ASCII without quotes and backslashes, so that no language
/// reads an end in it.
std::string export_title(const Plan& plan);
/// A sentence for a comment in any language: one line of ASCII without quotes and backslashes.
std::string comment_text(std::string text);

/// Why the target's framework cannot train the plan as it is; nothing where it can, and for launchers.
/// Of a plan for another framework, overlaps that this one decides on may be others: they change no result.
std::optional<Rejection> cannot_run(const ExportTarget& target, const Plan& plan);

/// The command of a run of `steps` steps on data that are made up, for what `folder` holds of the plan's
/// framework; on several nodes by the exported Slurm job. Nothing where such a run needs more.
struct TrialCommand {
  std::string command, where;  // where: ", " and what has to be there; may be empty
};
std::optional<TrialCommand> trial_command(const Plan& plan, const std::string& folder, int64_t steps);

/// A file of a framework's folder that exports merge or fill in (CMakeLists.txt).
std::string template_text(const std::string& name);
/// The template `name`.in with values in the places of their @names@. Every template may have title, nodes,
/// ranks_per_node, processes and processes_of_node, all of the plan.
std::string filled(const std::string& name, const Plan& plan, std::map<std::string, std::string> values = {});

/// A file from the template of its name; that of a shell may be executed.
void add_filled(const Plan& plan, const std::string& name, std::map<std::string, std::string> values,
                Exported& exported);
/// mpt_`name`_trial.py, and run_`name`_trial.sh, which starts it on every rank.
void add_trial(const Plan& plan, const char* software, const std::string& name,
               std::map<std::string, std::string> values, Exported& exported);

/// Processes that a node starts, for the command line of torchrun: a number, or "$processes" where the last
/// node has fewer.
std::string processes_word(const Plan& plan);
/// The lines of a shell script that set "$processes" for node number `node`; none where all have as many.
std::string processes_of_node(const Plan& plan, const std::string& node);

}  // namespace mpt::frameworks
