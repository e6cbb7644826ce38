// SPDX-License-Identifier: Apache-2.0
#pragma once

// Plan: everything that passes from planning to running. It is complete: whoever holds plan.json can run it,
// simulate it again, draw it or export it without another file.

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "core/cluster_spec.h"
#include "core/confidence.h"
#include "core/corrected.h"
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
/// Stages x micro-batches of a schedule: the program has about four instructions for each. Beyond it a
/// schedule is one that nobody runs.
inline constexpr int64_t kMostScheduleCells = 2'000'000;

/// A schedule as readable rows: "0": "F0 F1 B0 B1".
struct ScheduleRows {
#include "generated/ScheduleRows.inc"
};

/// Seconds that the prediction used for every instruction of one kind and stage.
struct InstructionDuration {
#include "generated/InstructionDuration.inc"
};

/// Largest relative spread of timings that are good to plan with: two profiles of one busy machine agreed
/// within 11% where no spread was larger. Where it was beyond a half they differed by up to seven times.
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

/// What the idle share of a pipeline is made of; the three add up to it (docs/glossary.md).
struct PipelineIdle {
#include "generated/PipelineIdle.inc"
};

struct Prediction {
#include "generated/Prediction.inc"
};

/// What a layout of the ranking is there for. simplest: the fastest with two kinds of parallelism at most.
enum class Role { recommended, alternative, simplest };

/// A layout that the search simulated, for the ranking.
struct RankedLayout {
#include "generated/RankedLayout.inc"
};

/// A layout that may not fit, and gains by its expected time beside the safe one, to fall back on.
struct WeighedRisk {
#include "generated/WeighedRisk.inc"
};

/// Other layers in the same stages, and what a step would take with them.
struct OtherStages {
#include "generated/OtherStages.inc"
};

/// What an axis of the layout talks over: the outermost level of the network that it crosses.
struct AxisLink {
#include "generated/AxisLink.inc"
};

/// Why a search does not look at a layout: it does not fit, it cannot be fast enough, or it is another layout
/// under a second name.
enum class PruneReason { memory, bound, duplicate };

/// Layouts that one tier of the search pruned (docs/search.md).
struct PrunedLayouts {
#include "generated/PrunedLayouts.inc"
};

/// Proof of the search: what became of every layout.
struct SearchCertificate {
#include "generated/SearchCertificate.inc"
};

struct Plan {
#include "generated/Plan.inc"
};

ScheduleRows schedule_rows(const Schedule& schedule);
/// Throws UserError at /schedule of `file` if a row cannot be read or the schedule has a defect.
Schedule schedule_from_rows(const ScheduleRows& rows, const std::string& file);

/// Reads, and checks what single fields cannot: version, layout against model and batch, schedule, footprints
/// and digest. Throws UserError with every problem found.
Plan load_plan(const std::filesystem::path& file);
Plan plan_from_text(const std::string& text, const std::string& file);
std::string plan_to_text(const Plan& plan);
nlohmann::ordered_json plan_to_json(const Plan& plan);
void save_plan(const Plan& plan, const std::filesystem::path& file);

/// Lowers the plan's schedule over its own footprints.
StepProgram program_of(const Plan& plan);
/// A duration for every instruction of the plan's program. Throws UserError if the plan lacks one.
std::vector<double> durations_of(const Plan& plan, const StepProgram& program);

/// Keeps the simulated step in the prediction, with its time and bubble.
void store_timeline(Plan& plan, const StepProgram& program, const Timeline& timeline);
/// The simulated step, or nothing if the plan holds none.
std::optional<Timeline> stored_timeline(const Plan& plan);

}  // namespace mpt
