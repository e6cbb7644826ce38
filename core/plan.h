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
  std::string name;
  int64_t ranks = 1;
  int64_t chunks = 1;
  int64_t micro_batches = 1;
  std::vector<int64_t> rank_of_stage;
  std::map<std::string, std::string> rows;  // by pipeline rank

  bool operator==(const ScheduleRows&) const = default;

  static void describe(auto& v) {
    using T = ScheduleRows;
    v.field("name", &T::name, "name of the schedule");
    v.field("ranks", &T::ranks, "pipeline ranks", between(1, 100000));
    v.field("chunks", &T::chunks, "virtual stages per rank", between(1, 100000));
    v.field("micro_batches", &T::micro_batches, "micro-batches per step", between(1, 10'000'000));
    v.field("rank_of_stage", &T::rank_of_stage, "pipeline rank of each virtual stage", between(0, 100000));
    v.field("rows", &T::rows, "actions of each pipeline rank in order: F, B, I or W and the micro-batch",
            long_text());
  }
};

/// Seconds that the prediction used for every instruction of one kind and stage.
struct InstructionDuration {
  InstructionKind kind = InstructionKind::forward;
  int64_t stage = -1;
  double seconds = 0.0;

  bool operator==(const InstructionDuration&) const = default;

  static void describe(auto& v) {
    using T = InstructionDuration;
    v.field("kind", &T::kind, "kind of instruction");
    v.field("stage", &T::stage, "virtual stage; -1 where there is none", between(-1, 100000));
    v.field("seconds", &T::seconds, "duration of one", between(0, 1e7));
  }
};

/// Where the durations came from.
/// Largest relative spread of timings that are good to plan with: two profiles of one busy machine agreed
/// within 11% where no spread was larger. Where it was beyond a half they differed by up to seven times.
inline constexpr double kNoisySpread = 0.2;

struct CostOrigin {
  std::string source;   // "profile", "kernels", "own kernels" or "roofline"
  std::string machine;  // what was measured or looked up
  std::string date;     // of the profile, ISO 8601; empty for a catalog
  std::string digest;   // of the profile or kernels file; empty for a catalog
  double spread = 0.0;  // the largest of the profile's timings of this model; 0: no profile

  bool operator==(const CostOrigin&) const = default;

  static void describe(auto& v) {
    using T = CostOrigin;
    v.field("source", &T::source, "profile, kernels, own kernels or roofline");
    v.field("machine", &T::machine, "machine of the measurements", long_text());
    v.field("date", &T::date, "date of the profile, ISO 8601; empty for a catalog");
    v.field("digest", &T::digest, "digest of the profile or kernels; empty for a catalog");
    v.field("spread", &T::spread, "largest spread of the profile's timings of layers; 0 without a profile",
            optional_field(between(0, 1e6)));
  }
};

struct RankMemory {
  int64_t rank = 0;  // pipeline rank
  int64_t parameter_bytes = 0;
  int64_t gradient_bytes = 0;
  int64_t optimizer_bytes = 0;
  int64_t transfer_buffer_bytes = 0;
  int64_t activation_peak_bytes = 0;  // the rest of the peak: activations held and workspace
  int64_t peak_bytes = 0;

  bool operator==(const RankMemory&) const = default;

  static void describe(auto& v) {
    using T = RankMemory;
    constexpr double kMax = 9e15;
    v.field("rank", &T::rank, "pipeline rank", between(0, 100000));
    v.field("parameter_bytes", &T::parameter_bytes, "weights", between(0, kMax));
    v.field("gradient_bytes", &T::gradient_bytes, "gradients", between(0, kMax));
    v.field("optimizer_bytes", &T::optimizer_bytes, "moments and master weights", between(0, kMax));
    v.field("transfer_buffer_bytes", &T::transfer_buffer_bytes, "transfer slots", between(0, kMax));
    v.field("activation_peak_bytes", &T::activation_peak_bytes, "activations and workspace at the peak",
            between(0, kMax));
    v.field("peak_bytes", &T::peak_bytes, "peak in all", between(0, kMax));
  }
};

/// Traffic of a step. sharding: ZeRO's gathering and scattering with every micro-batch; transfer: between
/// stages; gradients: reduction, norm and gathering at the step's end.
enum class CommunicationKind { tensor, context, expert, sharding, transfer, gradients };

/// Seconds by which one kind of traffic lengthens the step, on the ranks' average.
struct ExposedCommunication {
  CommunicationKind kind = CommunicationKind::tensor;
  double seconds = 0.0;

  bool operator==(const ExposedCommunication&) const = default;

  static void describe(auto& v) {
    using T = ExposedCommunication;
    v.field("kind", &T::kind, "kind of traffic");
    v.field("seconds", &T::seconds, "by which it lengthens the step", between(0, 1e9));
  }
};

/// What the idle share of a pipeline is made of; the three add up to it (docs/glossary.md).
struct PipelineIdle {
  double fill = 0.0;
  double unequal_stages = 0.0;
  double waiting = 0.0;

  bool operator==(const PipelineIdle&) const = default;

  static void describe(auto& v) {
    using T = PipelineIdle;
    v.field("fill", &T::fill, "share of the step: idle with stages that all take equally long",
            between(0, 1));
    v.field("unequal_stages", &T::unequal_stages, "share of the step: idle because some stages take longer",
            between(0, 1));
    v.field("waiting", &T::waiting, "share of the step: idle because of communication", between(0, 1));
  }
};

struct Prediction {
  double step_time_s = 0.0;
  double bubble_share = 0.0;
  std::optional<PipelineIdle> pipeline_idle;  // nothing: no pipeline
  double tokens_per_s = 0.0;
  double model_flop_per_step = 0.0;
  std::vector<RankMemory> memory;
  std::vector<ExposedCommunication> exposed;  // kinds that the layout has
  Confidence confidence;
  // The simulated step by instruction id; empty where the program has more than kMostStoredSpans
  // instructions.
  std::vector<double> start_s, end_s;

  bool operator==(const Prediction&) const = default;

  static void describe(auto& v) {
    using T = Prediction;
    v.field("step_time_s", &T::step_time_s, "seconds of one optimizer step", between(0, 1e9));
    v.field("bubble_share", &T::bubble_share, "share of the ranks' time in which compute idles",
            between(0, 1));
    v.field("pipeline_idle", &T::pipeline_idle, "what that share is made of, with a pipeline",
            optional_field());
    v.field("tokens_per_s", &T::tokens_per_s, "over all ranks", between(0, 1e15));
    v.field("model_flop_per_step", &T::model_flop_per_step, "forward and backward, without recompute",
            between(0, 1e30));
    v.field("memory", &T::memory, "peak of each pipeline rank");
    v.field("exposed", &T::exposed, "communication that compute does not hide, by kind", optional_field());
    v.field("confidence", &T::confidence, "how sure it is", optional_field());
    v.field("start_s", &T::start_s,
            "simulated start of each instruction of the lowered program; may be empty", between(0, 1e9));
    v.field("end_s", &T::end_s, "simulated end of each instruction", between(0, 1e9));
  }
};

/// What a layout of the ranking is there for. simplest: the fastest with two kinds of parallelism at most.
enum class Role { recommended, alternative, simplest };

/// A layout that the search simulated, for the ranking.
struct RankedLayout {
  Layout layout;
  double step_time_s = 0.0;
  double bubble_share = 0.0;
  int64_t peak_bytes = 0;
  double tokens_per_s = 0.0;
  Confidence confidence;
  Role role = Role::alternative;

  bool operator==(const RankedLayout&) const = default;

  static void describe(auto& v) {
    using T = RankedLayout;
    v.field("layout", &T::layout, "the layout");
    v.field("step_time_s", &T::step_time_s, "predicted", between(0, 1e9));
    v.field("bubble_share", &T::bubble_share, "predicted", between(0, 1));
    v.field("peak_bytes", &T::peak_bytes, "of the fullest rank", between(0, 9e15));
    v.field("tokens_per_s", &T::tokens_per_s, "predicted", between(0, 1e15));
    v.field("confidence", &T::confidence, "how sure the prediction is", optional_field());
    v.field("role", &T::role,
            "what it is there for; simplest: the fastest with at most two of tp, pp, cp, ep, dp",
            optional_field());
  }
};

/// A layout that may not fit, and gains by its expected time beside the safe one, to fall back on.
struct WeighedRisk {
  int64_t try_first = 2, fall_back = 1;  // places in the ranking, from 1
  double expected_s = 0.0;  // a step on average: with the first where it fits, else a trial and the other
  double gain = 0.0;        // by how much that is less than with the safe one from the start

  bool operator==(const WeighedRisk&) const = default;

  static void describe(auto& v) {
    using T = WeighedRisk;
    v.field("try_first", &T::try_first, "place in the ranking, from 1, of the layout that may not fit",
            between(1, 1e6));
    v.field("fall_back", &T::fall_back, "place in the ranking, from 1, of the safe layout", between(1, 1e6));
    v.field("expected_s", &T::expected_s, "seconds of a step on average, failed trials counted",
            between(0, 1e9));
    v.field("gain", &T::gain, "share by which that is less than a step of the safe layout", between(0, 1));
  }
};

/// Other layers in the same stages, and what a step would take with them.
struct OtherStages {
  std::vector<int64_t> layers_per_stage;
  double step_time_s = 0.0;

  bool operator==(const OtherStages&) const = default;

  static void describe(auto& v) {
    using T = OtherStages;
    v.field("layers_per_stage", &T::layers_per_stage, "decoder layers of each virtual stage, in model order",
            between(0, 100000));
    v.field("step_time_s", &T::step_time_s, "of a step with them", between(0, 1e9));
  }
};

/// What an axis of the layout talks over: the outermost level of the network that it crosses.
struct AxisLink {
  std::string axis;
  int64_t degree = 1;
  LinkLevel level;

  bool operator==(const AxisLink&) const = default;

  static void describe(auto& v) {
    using T = AxisLink;
    v.field("axis", &T::axis, "tensor, context, expert, pipeline, or gradients of all replicas");
    v.field("degree", &T::degree, "ranks of a group", between(1, 10'000'000));
    v.field("level", &T::level, "outermost level of the network that a group crosses");
  }
};

/// Why a search does not look at a layout: it does not fit, it cannot be fast enough, or it is another layout
/// under a second name.
enum class PruneReason { memory, bound, duplicate };

/// Layouts that one tier of the search pruned (docs/search.md).
struct PrunedLayouts {
  std::string tier;
  PruneReason reason = PruneReason::bound;
  int64_t layouts = 0;

  bool operator==(const PrunedLayouts&) const = default;

  static void describe(auto& v) {
    using T = PrunedLayouts;
    v.field("tier", &T::tier, "test of the search that pruned them");
    v.field("reason", &T::reason, "what the tier proves");
    v.field("layouts", &T::layouts, "how many", between(0, 9e15));
  }
};

/// Proof of the search: what became of every layout.
struct SearchCertificate {
  int64_t layouts = 0;
  int64_t over_memory = 0;
  int64_t over_bound = 0;  // their lower bound passed the best time found
  int64_t simulated = 0;
  bool optimal = false;
  bool counted = true;  // false: the search was stopped before it had listed the whole space
  double seconds = 0.0;
  int64_t same = 0;         // equal to another layout of the space under another name
  int64_t not_reached = 0;  // left when the search was stopped
  double fastest_s = 0.0;   // step time of the fastest layout that fits; the plan may be another one
  double gap = 0.0;         // of a stopped search: by how much, as a share, the best may be above the optimum
  std::vector<PrunedLayouts> pruned;  // by tier, in order of price
  std::optional<DrawnChoice> drawn;   // nothing: there was nothing to choose, or no run tells

  bool operator==(const SearchCertificate&) const = default;

  static void describe(auto& v) {
    using T = SearchCertificate;
    constexpr double kMax = 9e15;
    v.field("layouts", &T::layouts, "layouts in the space", between(0, kMax));
    v.field("over_memory", &T::over_memory, "ruled out by memory", between(0, kMax));
    v.field("over_bound", &T::over_bound, "ruled out by the lower bound", between(0, kMax));
    v.field("simulated", &T::simulated, "simulated", between(0, kMax));
    v.field("same", &T::same, "equal to another layout", optional_field(between(0, kMax)));
    v.field("not_reached", &T::not_reached, "left when the search was stopped",
            optional_field(between(0, kMax)));
    v.field("fastest_s", &T::fastest_s, "step time of the fastest layout that fits; 0: not known",
            optional_field(between(0, 1e9)));
    v.field("gap", &T::gap, "share by which the best may be above the optimum",
            optional_field(between(0, 1)));
    v.field("optimal", &T::optimal, "whether every layout is accounted for");
    v.field("counted", &T::counted, "whether the space was counted to its end before a stop",
            optional_field());
    v.field("seconds", &T::seconds, "time of the search", between(0, 1e9));
    v.field("pruned", &T::pruned, "layouts that were not simulated, by the tier that pruned them",
            optional_field());
    v.field("drawn", &T::drawn, "how far the choice depends on errors of the prices", optional_field());
  }
};

struct Plan {
  std::string format = "mpt-plan";
  int64_t version = kPlanVersion;
  ModelSpec model;
  ClusterSpec cluster;
  Workload workload;
  int64_t memory_limit_bytes = 0;  // per rank
  Layout layout;
  ScheduleRows schedule;
  std::vector<StageFootprint> footprints;  // per virtual stage
  std::string program_digest;
  CostOrigin cost;
  std::vector<InstructionDuration> durations;
  std::vector<double> rate_by_active_ranks;  // speed of one of n ranks that compute at once; empty: always 1
  Prediction prediction;
  SearchCertificate search;
  std::vector<AxisLink> links;               // of the axes that the layout splits
  std::vector<RankedLayout> ranking;         // best first; the chosen one is first
  std::optional<OtherStages> faster_stages;  // of an estimate: nothing where no other division is faster
  std::optional<WeighedRisk> risk;           // nothing: no layout that may not fit is worth a trial
  std::vector<RankedLayout> front;   // nothing beats one in time, memory and ranks; empty where not asked for
  std::vector<std::string> reasons;  // why this one
  std::vector<std::string> rejected;  // what ruled the others out
  // Beside which published runs the prediction stands, and what they took and held; empty where there are
  // none.
  std::vector<std::string> evidence;
  std::optional<Corrected> corrected;  // by runs that were observed; nothing: there are none
  std::vector<std::string> notes;      // what to know before the plan is used, a sentence each
  // Nothing: the framework runs the model and MPT writes it, or layouts were searched beyond the framework.
  std::optional<ModelVerdict> verdict;
  Objective objective;
  PlanRequest request;  // what was asked: planning it again gives this plan

  bool operator==(const Plan&) const = default;

  static void describe(auto& v);
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

void Plan::describe(auto& v) {
  using T = Plan;
  v.field("format", &T::format, "always \"mpt-plan\"");
  v.field("version", &T::version, "version of this format", between(kPlanVersion, kPlanVersion));
  v.field("model", &T::model, "what is trained");
  v.field("cluster", &T::cluster, "where");
  v.field("workload", &T::workload, "batch and sequence");
  v.field("memory_limit_bytes", &T::memory_limit_bytes, "per rank", between(1, 9e15));
  v.field("layout", &T::layout, "how it is split");
  v.field("schedule", &T::schedule, "order of work on each pipeline rank");
  v.field("footprints", &T::footprints, "bytes of each virtual stage");
  v.field("program_digest", &T::program_digest, "digest of the lowered program");
  v.field("cost", &T::cost, "where the durations came from");
  v.field("durations", &T::durations, "seconds by kind and stage");
  v.field("rate_by_active_ranks", &T::rate_by_active_ranks, "speed of one of n ranks computing at once",
          between(1e-6, 1));
  v.field("prediction", &T::prediction, "what the planner expects");
  v.field("search", &T::search, "certificate of the search");
  v.field("links", &T::links, "which axis lies on which level of the network", optional_field());
  v.field("ranking", &T::ranking, "the best layouts");
  v.field("faster_stages", &T::faster_stages, "of an estimate: layers of the stages with which it is faster",
          optional_field());
  v.field("risk", &T::risk, "a faster layout that may not fit, and the safe one to fall back on",
          optional_field());
  v.field("front", &T::front, "layouts that none beats in time, memory and ranks", optional_field());
  v.field("reasons", &T::reasons, "why this layout", long_text());
  v.field("rejected", &T::rejected, "what ruled the others out", long_text());
  v.field("evidence", &T::evidence, "what published runs took and held beside their predictions",
          optional_field(long_text()));
  v.field("corrected", &T::corrected, "what observed runs make of the predictions", optional_field());
  v.field("notes", &T::notes, "what to know before the plan is used", optional_field(long_text()));
  v.field("objective", &T::objective, "whether it trains what one GPU would", optional_field());
  v.field("verdict", &T::verdict, "what the framework makes of the model, where MPT does not write it",
          rare_field());
  v.field("request", &T::request, "what was asked; mpt-plan --request repeats it");
}

}  // namespace mpt
