// SPDX-License-Identifier: Apache-2.0
#pragma once

// Import: a training of another framework, as model, layout and workload.

#include <optional>
#include <string>
#include <vector>

#include "core/layout.h"
#include "core/model_spec.h"
#include "frameworks/imported_file.h"
#include "frameworks/readers/settings.h"

namespace mpt::frameworks {

struct Imported {
  std::optional<ModelSpec> model;
  std::string unknown_model;           // the file's name for a model that is not known
  std::string framework;               // that runs the file; empty: the importer's
  Layout layout;                       // data-parallel degree 0: all ranks left over
  int64_t shard_groups = 1;            // groups of replicas; each group shares out the states
  std::vector<std::string> execution;  // fields of Execution that the file decides, as "name=value"
  Workload workload;
  int64_t accumulated = 1;            // micro-batches of a step, if it has no global batch
  int64_t at_once = 0;                // micro-batches that a run of the pipeline takes; 0: a step's
  std::string open_vocabulary;        // tokenizer of a vocabulary of unknown size
  int64_t micro_batch_group = 0;      // micro-batches of a virtual stage in turn; 0: the pipeline degree
  std::string length_note;            // the note about a missing sequence length, from `notes`
  std::vector<std::string> notes;     // settings not understood, or without a counterpart
  std::vector<std::string> unknown;   // keys that the framework does not have, but the file's own
                                      // program may read: the recipe cannot be judged
  std::optional<Problem> refused;     // by the framework's own rules for its settings
  int64_t ranks = 0, nodes = 0;       // that the file starts; 0: not stated
  bool defers_gradient_sums = false;  // Traffic's, if there are several micro-batches
};

/// Checks an importer's result: sizes are in the ranges of a plan, and products of degrees are at most
/// kMostRanks. Throws UserError.
void check_imported(const Imported& imported, const std::string& file);
/// Throws UserError at `where` for more stages than the model's layers can be split into.
void check_stages(const Layout& layout, const ModelSpec& model, const std::string& where);

// Shared by the imports of frameworks that train by PyTorch's FSDP.

struct FsdpRanks {
  int64_t replicate = 1;
  int64_t shard = 0;    // 0: all ranks left over
  bool reshard = true;  // after a layer's forward
};

/// Sets FSDP2's default for accumulated micro-batches. The note says that `value` of `key` would switch it
/// off.
void defer_gradient_sums(const std::string& key, const char* value, Imported& in);
/// Sets data-parallel degree, ZeRO stage and shard groups of a layout with known context degree, and the
/// communication that FSDP overlaps with compute. Throws UserError if the degrees need more ranks than there
/// are.
void set_fsdp(Imported& in, const FsdpRanks& ranks, const std::string& file);

/// For programs that accumulate gradients over whole runs of the pipeline, which fill and drain it anew.
/// `key` has the sequences of a run. One run of a step is priced, as the note says.
void run_pipeline_again(int64_t micro_batches, const char* key, Imported& in);

/// "bf16", as in a plan. Throws UserError.
Precision precision_named(const std::string& name, const std::string& where);

/// Sets the optimizer of that name. Unknown ones are priced as AdamW, with a note.
void set_optimizer(Imported& in, const std::string& name);

/// Notes the settings without a place in a plan of the framework. Settings that are off (false, 1 or "none")
/// get no note.
void note_left_out(const Settings& settings, const std::string& framework, Imported& in);

/// If a rank spreads experts, each is whole; else experts are split like the dense layers.
void set_whole_experts(Layout& layout);

/// The schedule of a class of torch.distributed.pipelining, in any case of letters. Throws NotJudged at
/// `where` for a schedule that MPT does not plan for the framework.
std::string schedule_of_torch(const std::string& framework, const std::string& torch_class,
                              const std::string& where);

/// Virtual stages per rank if `layers` are cut into stages of `each` (0: not stated). Throws FrameworkRefusal
/// at `where` if the ranks cannot have equal numbers of stages, unless `rounds` is "up" or "down", and if the
/// schedule takes another number.
int64_t chunks_of_stages(const Imported& in, int64_t layers, int64_t each, const std::string& rounds,
                         const std::string& where);

/// Sets chunks from the layers of each stage, and checks the number of stages. Empty: equal stages of
/// `chunks`.
void set_stages(Imported& in, const std::vector<int64_t>& layers, const std::string& where);

}  // namespace mpt::frameworks
