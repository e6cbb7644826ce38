// SPDX-License-Identifier: Apache-2.0
#pragma once

// Import: what somebody runs in another framework, as model, layout and workload.

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "core/layout.h"
#include "core/model_spec.h"
#include "frameworks/readers/settings.h"

namespace mpt::frameworks {

/// Of a file that is imported. The largest are MPT's own scripts for PyTorch: they list the order of each
/// pipeline rank, some megabytes with hundreds of micro-batches.
inline constexpr int64_t kMostImportedBytes = 8 << 20;

struct Imported {
  std::optional<ModelSpec> model;
  std::string unknown_model;  // the file's name for a model that is not known
  std::string framework;      // that runs it; empty: the importer's
  Layout layout;              // data-parallel degree 0: what the ranks leave
  int64_t shard_groups = 1;   // replicas are cut into as many groups, each of which shares out the states
  std::vector<std::string> execution;  // fields of Execution that the file decides on, as "name=value"
  Workload workload;
  int64_t accumulated = 1;            // micro-batches of a step, where it has no global batch
  std::string open_vocabulary;        // tokenizer of a vocabulary whose size is not known
  int64_t micro_batch_group = 0;      // micro-batches of a virtual stage in turn; 0: the pipeline degree
  std::string length_note;            // the one of `notes` on a sequence length that the file lacks
  std::vector<std::string> notes;     // what was not understood, or has no counterpart
  std::vector<std::string> unknown;   // keys that the framework does not have, as far as the file's own
                                      // program takes others: the recipe cannot be judged
  std::optional<Problem> refused;     // by the framework's own rules for its settings
  int64_t ranks = 0, nodes = 0;       // that the file starts; 0: it does not say
  bool defers_gradient_sums = false;  // Traffic's, where there are several micro-batches
};

/// The framework itself refuses the layout of a file that can be read.
class FrameworkRefusal final : public UserError {
 public:
  using UserError::UserError;
};

/// What a file trains can be read, but plans do not describe it.
class NotJudged final : public UserError {
 public:
  using UserError::UserError;
};

/// Checks an importer's result: sizes are in the ranges of a plan, and products of degrees are at most
/// kMostRanks. Throws UserError.
void check_imported(const Imported& imported, const std::string& file);
/// Throws UserError at `where` for more stages than the model's layers can be split into.
void check_stages(const Layout& layout, const ModelSpec& model, const std::string& where);

// What the imports of frameworks on PyTorch's FSDP share.

struct FsdpRanks {
  int64_t replicate = 1;
  int64_t shard = 0;    // 0: what the ranks leave
  bool reshard = true;  // after a layer's forward
};

/// FSDP2's default where micro-batches are accumulated; `value` of `key` would switch it off.
void defer_gradient_sums(const std::string& key, const char* value, Imported& in);
/// Data-parallel degree, ZeRO stage and shares of an imported layout, whose context degree is set; and the
/// communication that FSDP runs beside compute. Throws UserError for more ranks than there are.
void set_fsdp(Imported& in, const FsdpRanks& ranks, const std::string& file);

/// "bf16", as in a plan. Throws UserError.
Precision precision_named(const std::string& name, const std::string& where);

/// Sets the optimizer of that name. Unknown ones are priced as AdamW, with a note.
void set_optimizer(Imported& in, const std::string& name);

/// Notes the settings that a plan of the framework has no place for. Those that are off (false, 1 or "none")
/// are left out.
void note_left_out(const Settings& settings, const std::string& framework, Imported& in);

/// Where a rank spreads experts, each is whole; else experts are split as the dense layers are.
void set_whole_experts(Layout& layout);

/// The schedule of a class of torch.distributed.pipelining, whose name may have any case. Throws NotJudged at
/// `where` for one that MPT does not plan for the framework.
std::string schedule_of_torch(const std::string& framework, const std::string& torch_class,
                              const std::string& where);

/// Virtual stages of a rank where `layers` are cut into stages of `each` (0: not said). Throws
/// FrameworkRefusal at `where` for stages that the ranks do not share evenly, unless these are rounded "up"
/// or "down", and for another number than the schedule takes.
int64_t chunks_of_stages(const Imported& in, int64_t layers, int64_t each, const std::string& rounds,
                         const std::string& where);

/// Stages by numbers of layers: sets chunks, and checks the number of stages. Empty: even ones of `chunks`.
void set_stages(Imported& in, const std::vector<int64_t>& layers, const std::string& where);

}  // namespace mpt::frameworks
