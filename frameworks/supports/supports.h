// SPDX-License-Identifier: Apache-2.0
#pragma once

// The only judge of "can this framework run this layout?". The search asks level by level and takes the
// answers as bounds; everyone else asks for the whole layout. A half-built layout has another type: Degrees
// here, DenseSplit in planner/search/space.cpp. So no rule of layouts can be asked of it.

#include <optional>

#include "core/layout.h"
#include "core/verdict.h"
#include "frameworks/supports/abilities.h"

namespace mpt::frameworks {

/// Why `framework` cannot run `layout`, or why there is no such layout; nothing where it can.
std::optional<Rejection> supports(const Framework& framework, const ModelSpec& model, const Layout& layout,
                                  const Workload& workload);

/// By its dialect: whether its words say all of the model, or it has its type of config.json. Where they do
/// not, by what was asked of its package: a model of its registry, or of parts that it has, runs.
const ModelVerdict& verdict_on(const Framework& framework, const ModelSpec& model);

/// The same of the model and the way to train it.
ModelVerdict verdict_on(const Framework& framework, const ModelSpec& model, const Training& training);

/// The model as the framework trains it: without next-token layers where it leaves these out.
ModelSpec trained_by(const Framework& framework, ModelSpec model);

/// Frameworks that train the model in this way; those that MPT writes it for come first.
std::vector<std::string> frameworks_that_train(const ModelSpec& model, const Training& training,
                                               Precision precision);

/// Whether it does not run the model, or MPT cannot judge it.
std::optional<Rejection> lacks_model(const Framework& framework, const ModelSpec& model);

/// Whether it has the model and multiplies in this precision.
std::optional<Rejection> supports_model(const Framework& framework, const ModelSpec& model,
                                        Precision precision);

/// Whether it trains in this way, whatever the layout.
std::optional<Rejection> supports_training(const Framework& framework, const Training& training);

/// Degrees of tensor, context and pipeline parallelism.
std::optional<Rejection> supports_degrees(const Framework& framework, const Degrees& degrees);

/// The degrees, sequence and context parallelism, experts, rank order and overlaps. Reads no ZeRO stage,
/// schedule, chunks, stages or recompute.
std::optional<Rejection> supports_split(const Framework& framework, const ModelSpec& model,
                                        const Layout& layout, const Workload& workload);

/// What replicas share out of a layout whose split is supported.
struct Sharing {
  int64_t zero = 0, shard = 1;
  bool offload = false;
};
std::optional<Rejection> supports_sharding(const Framework& framework, const ModelSpec& model,
                                           const Layout& layout, const Sharing& sharing);
/// Whether that refuses, without the reason.
bool refuses_sharding(const Framework& framework, const ModelSpec& model, const Layout& layout,
                      const Sharing& sharing);

/// Schedule and chunks for a step of `micro_batches` of a layout; of the layout it reads the pipeline, what
/// overlaps and the kernels.
std::optional<Rejection> supports_schedule(const Framework& framework, const Layout& layout,
                                           const std::string& schedule, int64_t chunks,
                                           int64_t micro_batches);

/// Whether a schedule comes to it as rows of actions, because it has none of that name.
bool needs_rows(const Framework& framework, const std::string& schedule);
/// The same as a reason.
std::optional<Rejection> runs_by_name(const Framework& framework, const std::string& schedule);
/// Whether its class of the schedule deals out micro-batches in equal rounds, as make_schedule() has it.
bool deals_equal_rounds(const Framework& framework, const std::string& schedule);

/// Whether a schedule with virtual stages takes micro-batches in groups of `group`, of another size than the
/// pipeline: the last group is whole, or has a micro-batch for each rank (Megatron-LM,
/// megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_with_interleaving).
bool takes_micro_batch_groups(const Layout& layout, const Workload& workload, int64_t group);

/// Whether parts of layout and model go together: traits_of() of a model of `type`, of a layout and, where it
/// is known, of a leaf.
std::optional<Rejection> check_combination(const Framework& framework, const std::string& type,
                                           Traits traits);

/// Whether that refuses nothing, without a reason.
bool combines(const Framework& framework, const std::string& type, Traits traits);

/// Whether the framework trains what one GPU would that takes one sequence at a time. Where no run and no
/// line shows it, `same` is false and `seen` is empty.
Objective objective_of(const Framework& framework, const ModelSpec& model, const Layout& layout,
                       const Workload& workload);

/// Stages of equal numbers of layers or others.
std::optional<Rejection> supports_stages(const Framework& framework, bool equal);

/// Recompute of all layers, or of some of them (`partial`).
std::optional<Rejection> supports_recompute(const Framework& framework, Recompute recompute, bool partial);

/// Layers that recompute in a virtual stage of `layers` at `level` of partial recompute: level 0 is none, the
/// levels up to `most` recompute more and more, the last all of them. `most` is the number of layers of the
/// largest stage.
int64_t recomputed_at_level(PartialRecompute rule, int64_t level, int64_t most, int64_t layers);

/// The level of partial recompute that a layout has in all of its stages; nothing where these differ.
std::optional<int64_t> level_of(PartialRecompute rule, const Layout& layout);

/// What `training` is beside full training by AdamW.
std::vector<TrainingFeature> features_of(const Training& training);

}  // namespace mpt::frameworks
