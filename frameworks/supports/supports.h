// SPDX-License-Identifier: Apache-2.0
#pragma once

// The only judge of "can this framework run this layout?". The search asks level by level and uses the
// answers as bounds. All other callers ask for the whole layout. An incomplete layout has another type:
// Degrees here, DenseSplit in planner/search/space.cpp. So rules of whole layouts cannot be asked of it.

#include <optional>

#include "core/layout.h"
#include "core/verdict.h"
#include "frameworks/supports/abilities.h"

namespace mpt::frameworks {

/// Why `framework` cannot run `layout`, or why there is no such layout; nothing if it can.
std::optional<Rejection> supports(const Framework& framework, const ModelSpec& model, const Layout& layout,
                                  const Workload& workload);

/// The verdict by the framework's dialect: its words describe all of the model, or it has the model's type of
/// config.json. Else by the facts of its package (frameworks/asked.h): a model of its registry runs, and so
/// does one made of parts that the package has.
const ModelVerdict& verdict_on(const Framework& framework, const ModelSpec& model);

/// The same for the model and the way to train it.
ModelVerdict verdict_on(const Framework& framework, const ModelSpec& model, const Training& training);

/// The model as the framework trains it: without next-token layers if it leaves them out.
ModelSpec trained_by(const Framework& framework, ModelSpec model);

/// Whether a framework trains the model so, whether or not MPT writes its files.
bool trains(const Framework& framework, const ModelSpec& model, const Training& training, Precision type);
/// Frameworks that train the model in this way; those with an export for it come first.
std::vector<std::string> frameworks_that_train(const ModelSpec& model, const Training& training,
                                               Precision precision);

/// Why it does not run the model, or why MPT cannot judge it.
std::optional<Rejection> lacks_model(const Framework& framework, const ModelSpec& model);
/// Throws UserError that names the first feature of the model that mpt-run lacks.
void check_own_runtime(const ModelSpec& model);

/// Whether it has the model and computes products in this precision.
std::optional<Rejection> supports_model(const Framework& framework, const ModelSpec& model, Precision type);

/// Whether it trains in this way, in any layout.
std::optional<Rejection> supports_training(const Framework& framework, const Training& training);

/// Degrees of tensor, context and pipeline parallelism.
std::optional<Rejection> supports_degrees(const Framework& framework, const Degrees& degrees);

/// Judges the degrees, sequence and context parallelism, experts, rank order and overlaps. Reads no ZeRO
/// stage, schedule, chunks, stages or recompute.
std::optional<Rejection> supports_split(const Framework& framework, const ModelSpec& model,
                                        const Layout& layout, const Workload& workload);

/// The sharing between the replicas of a layout with a supported split.
struct Sharing {
  int64_t zero = 0, shard = 1;
  bool offload = false;
};
std::optional<Rejection> supports_sharding(const Framework& framework, const ModelSpec& model,
                                           const Layout& layout, const Sharing& sharing);
/// Whether supports_sharding() refuses, without the reason.
bool refuses_sharding(const Framework& framework, const ModelSpec& model, const Layout& layout,
                      const Sharing& sharing);

/// Judges schedule and chunks for a step of `micro_batches`. Of `layout` it reads the pipeline, the overlaps
/// and the kernels.
std::optional<Rejection> supports_schedule(const Framework& framework, const Layout& layout,
                                           const std::string& schedule, int64_t chunks,
                                           int64_t micro_batches);

/// Whether the framework gets a schedule as rows of actions, because it has none of that name.
bool needs_rows(const Framework& framework, const std::string& schedule);
/// The same as a reason.
std::optional<Rejection> runs_by_name(const Framework& framework, const std::string& schedule);
/// Whether its class of the schedule takes micro-batches in equal rounds, like make_schedule().
bool deals_equal_rounds(const Framework& framework, const std::string& schedule);

/// Whether a schedule with virtual stages takes micro-batches in groups of `group`, a size other than the
/// pipeline degree. The last group must be whole, or have a micro-batch for each rank (Megatron-LM,
/// megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_with_interleaving).
bool takes_micro_batch_groups(const Layout& layout, const Workload& workload, int64_t group);

/// Whether parts of layout and model work together: traits_of() of a model of `type`, of a layout and, if
/// known, of a leaf.
std::optional<Rejection> check_combination(const Framework& framework, const std::string& type, Traits has);

/// Whether check_combination() refuses nothing, without a reason.
bool combines(const Framework& framework, const std::string& type, Traits traits);

/// Whether the framework's objective equals that of one GPU that takes one sequence at a time. If no run and
/// no line of source shows it, `same` is false and `seen` is empty.
Objective objective_of(const Framework& framework, const ModelSpec& model, const Layout& layout,
                       const Workload& workload);

/// Stages with equal numbers of layers, or with any.
std::optional<Rejection> supports_stages(const Framework& framework, bool equal);

/// Recompute of all layers, or of some of them (`partial`).
std::optional<Rejection> supports_recompute(const Framework& framework, Recompute recompute, bool partial);

/// Layers that recompute in a virtual stage of `layers` at `level` of partial recompute. Level 0 is none;
/// each further level up to `most` recomputes more; the last is all. `most` is the number of layers of the
/// largest stage.
int64_t recomputed_at_level(PartialRecompute rule, int64_t level, int64_t most, int64_t layers);

/// The level of partial recompute that all stages of a layout have; nothing if they differ.
std::optional<int64_t> level_of(PartialRecompute rule, const Layout& layout);

/// The features in which `training` differs from full training by AdamW.
std::vector<TrainingFeature> features_of(const Training& training);

}  // namespace mpt::frameworks
