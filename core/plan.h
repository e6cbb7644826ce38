// SPDX-License-Identifier: Apache-2.0
#pragma once

// Plan: all values that pass from planning to running. It is complete: plan.json can be run, simulated again,
// drawn or exported without another file.

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "core/cluster_spec.h"
#include "core/confidence.h"
#include "core/layout.h"
#include "core/model_spec.h"
#include "core/plan_request.h"
#include "core/schedule.h"
#include "core/stage_footprint.h"
#include "core/step_program.h"
#include "core/timeline.h"
#include "core/verdict.h"

namespace mpt {

inline constexpr int kPlanVersion = 5;
inline constexpr size_t kMostStoredSpans = 50'000;
/// Limit on stages x micro-batches of a schedule. The program has about four instructions for each. Nobody
/// runs a schedule beyond it.
inline constexpr int64_t kMostScheduleCells = 2'000'000;

/// Predictions corrected by observed runs (planner/observe/).
struct CorrectedLayout {
#include "generated/CorrectedLayout.inc"
};
struct Corrected {
#include "generated/Corrected.inc"
};

/// A schedule as readable rows: "0": "F0 F1 B0 B1".
struct ScheduleRows {
#include "generated/ScheduleRows.inc"
};

/// Seconds that the prediction used for every instruction of one kind and stage.
struct InstructionDuration {
#include "generated/InstructionDuration.inc"
};

/// Largest relative spread of timings that are good to plan with. Two profiles of one busy machine agreed
/// within 11% where no spread was larger; where it was above a half they differed by up to seven times.
inline constexpr double kNoisySpread = 0.2;

/// Where the durations came from.
struct CostOrigin {
#include "generated/CostOrigin.inc"
};

struct RankMemory {
#include "generated/RankMemory.inc"
};

/// Traffic of a step. sharding: ZeRO's gathering and scattering with every micro-batch; transfer: between
/// stages; gradients: reduction, norm and gathering at the step's end.
enum class CommunicationKind { tensor, context, expert, sharding, transfer, gradients };

/// Seconds by which one kind of traffic lengthens the step, on the ranks' average.
struct ExposedCommunication {
#include "generated/ExposedCommunication.inc"
};

/// The parts of the idle share of a pipeline; the three add up to it (docs/glossary.md).
struct PipelineIdle {
#include "generated/PipelineIdle.inc"
};

struct Prediction {
#include "generated/Prediction.inc"
};

/// Why a layout is in the ranking. simplest: the fastest with at most two kinds of parallelism.
enum class Role { recommended, alternative, simplest };

/// A layout of the ranking, which the search simulated.
struct RankedLayout {
#include "generated/RankedLayout.inc"
};

/// A faster layout that may not fit, the safe layout to fall back on, and the expected gain of a trial.
struct WeighedRisk {
#include "generated/WeighedRisk.inc"
};

/// Another number of layers in each stage, and the predicted time of a step with it.
struct OtherStages {
#include "generated/OtherStages.inc"
};

/// The network of an axis of the layout: the outermost level that it crosses.
struct AxisLink {
#include "generated/AxisLink.inc"
};

/// Why a search does not evaluate a layout: it does not fit, it cannot be fast enough, or it is another
/// layout under a second name.
enum class PruneReason { memory, bound, duplicate };

/// Layouts that one tier of the search pruned (docs/search.md).
struct PrunedLayouts {
#include "generated/PrunedLayouts.inc"
};

/// Proof of the search: the counts of all layouts by their result.
struct SearchCertificate {
#include "generated/SearchCertificate.inc"
};

/// Whether a checkpoint of one layout is read in another: as it is, or once it was prepared.
enum class CheckpointReading { not_judged, as_it_is, prepared };

/// The best layout on fewer nodes than the plan's.
struct FewerNodes {
#include "generated/FewerNodes.inc"
};

/// A checkpoint of the plan, which is read where another layout goes on.
struct CheckpointCost {
#include "generated/CheckpointCost.inc"
};

struct Plan {
#include "generated/Plan.inc"
};

ScheduleRows schedule_rows(const Schedule& schedule);
/// Throws UserError at /schedule of `file` if a row cannot be read or the schedule has a defect.
Schedule schedule_from_rows(const ScheduleRows& rows, const std::string& file);

/// Reads a plan and checks rules that span fields: version, layout against model and batch, schedule,
/// footprints and digest. Throws UserError with every problem found.
Plan load_plan(const std::filesystem::path& file);
Plan plan_from_text(const std::string& text, const std::string& file);
std::string plan_to_text(const Plan& plan);
nlohmann::ordered_json plan_to_json(const Plan& plan);
void save_plan(const Plan& plan, const std::filesystem::path& file);

/// Lowers the plan's schedule with the plan's footprints.
StepProgram program_of(const Plan& plan);
/// A duration for every instruction of the plan's program. Throws UserError if the plan lacks one.
std::vector<double> durations_of(const Plan& plan, const StepProgram& program);

/// Keeps the simulated step in the prediction, with its time and bubble.
void store_timeline(Plan& plan, const StepProgram& program, const Timeline& timeline);
/// The simulated step, or nothing if the plan holds none.
std::optional<Timeline> stored_timeline(const Plan& plan);

}  // namespace mpt
