// SPDX-License-Identifier: Apache-2.0
#pragma once

// PublishedRun: a training run that somebody measured, as the request that describes it and what was observed
// (docs/validation.md). A prediction of it is the estimate of its request.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/plan_request.h"
#include "planner/cost/calibration.h"
#include "planner/explain/explain.h"
#include "planner/explain/work_classes.h"

namespace mpt::planner {

/// How memory was measured. allocated: tensors. reserved: all that the allocator holds for them. device: all
/// of a GPU, as nvidia-smi shows it.
enum class MemoryMeasure { allocated, reserved, device };

}  // namespace mpt::planner

namespace mpt {
MPT_ENUM_NAMES(planner::MemoryMeasure, {planner::MemoryMeasure::allocated, "allocated"},
               {planner::MemoryMeasure::reserved, "reserved"}, {planner::MemoryMeasure::device, "device"});
}  // namespace mpt

namespace mpt::planner {

struct RunSource {
  std::string where, path, version;

  template <class V>
  static void describe(V& v) {
    using T = RunSource;
    v.field("where", &T::where, "repository, page or paper", long_text());
    v.field("path", &T::path, "file or table in it", long_text());
    v.field("version", &T::version, "commit or date", long_text());
  }
};

struct Observation {
  std::optional<double> seconds, gib;
  std::vector<int64_t> ranks;
  MemoryMeasure how = MemoryMeasure::allocated;
  bool out_of_memory = false;

  template <class V>
  static void describe(V& v) {
    using T = Observation;
    v.field("seconds", &T::seconds, "one optimizer step", optional_field(between(1e-6, 1e9)));
    v.field("gib", &T::gib, "peak memory of a GPU", optional_field(between(1e-3, 1e6)));
    v.field("of", &T::ranks, "pipeline ranks whose memory was read; of several the fullest (default: all)",
            optional_field(between(0, double(kMostRanks))));
    v.field("how", &T::how, "what was counted: allocated, reserved or device", optional_field());
    v.field("out_of_memory", &T::out_of_memory, "it failed for lack of GPU memory", optional_field());
  }
};

/// Values that a field of the layout may have had, where the source does not say it. The request has one of
/// them.
struct OpenFields {
  std::vector<int64_t> chunks, micro_batch, zero;
  std::vector<Recompute> recompute;

  bool empty() const { return chunks.empty() && micro_batch.empty() && zero.empty() && recompute.empty(); }

  template <class V>
  static void describe(V& v) {
    using T = OpenFields;
    v.field("chunks", &T::chunks, "virtual stages per pipeline rank", optional_field(between(1, 100000)));
    v.field("micro_batch", &T::micro_batch, "sequences per micro-batch", optional_field(between(1, 1 << 24)));
    v.field("zero", &T::zero, "ZeRO stage", optional_field(between(0, 3)));
    v.field("recompute", &T::recompute, "what is recomputed", optional_field());
  }
};

/// Why a measurement is not compared: the run does something that no request can express.
struct Unmodelled {
  std::string seconds, gib;

  template <class V>
  static void describe(V& v) {
    using T = Unmodelled;
    v.field("seconds", &T::seconds, "why its step time is not compared", optional_field(long_text()));
    v.field("gib", &T::gib, "why its memory is not compared", optional_field(long_text()));
  }
};

struct PublishedRun {
  std::string id, set, family, tier, software, seen, notes;
  RunSource source;
  PlanRequest request;
  OpenFields unknown;
  Observation observed;
  Unmodelled unmodelled;
  std::map<std::string, std::string> quotes, facts;

  template <class V>
  static void describe(V& v) {
    using T = PublishedRun;
    v.field("id", &T::id, "name of the run, unlike all others", long_text());
    v.field("set", &T::set, "published, other, failed, blind, wide or community");
    v.field("family", &T::family, "name of the source; runs of one family are left out together");
    v.field("tier", &T::tier, "how good the source is, A to D", optional_field());
    v.field("software", &T::software, "the framework in the source's words", long_text());
    v.field("source", &T::source, "where it was published");
    v.field("request", &T::request, "the run as a request to mpt-plan (docs/requests.md)");
    v.field("unknown", &T::unknown, "fields of the layout that the source does not say, and their values",
            optional_field());
    v.field("observed", &T::observed, "what was measured");
    v.field("quotes", &T::quotes, "words of the source from which a field of the request follows",
            optional_field(long_text()));
    v.field("unmodelled", &T::unmodelled, "measurements that are not counted, with the reason",
            optional_field());
    v.field("seen", &T::seen, "blind: predicted before anything was changed for it", optional_field());
    v.field("facts", &T::facts, "what else the source says, for people; nothing reads them",
            optional_field(long_text()));
    v.field("notes", &T::notes, "remarks for people; nothing reads them", optional_field(long_text()));
  }
};

/// Reads JSON Lines: one run in each line. Throws UserError that names file and line.
std::vector<PublishedRun> load_published_runs(const std::string& file);

/// The request with the values of a framework of reports/validation/frameworks in its layout, where it names
/// one of those.
PlanRequest request_of(const PublishedRun& run);

struct RunPrediction {
  Layout layout;
  ModelSpec model;
  Workload workload;
  std::string gpu, priced_by;  // the latter as CostOrigin::source
  double step_s = 0.0;
  double least_s = 0.0, most_s = 0.0;  // of the layouts that fit with any values of unknown fields
  double peak_gib = 0.0;               // as it would have been measured
  int64_t limit_bytes = 0;             // of tensors, on one rank
  bool fits = true;                    // in that, with some values
  std::vector<RankMemory> memory;      // of tensors, by pipeline rank
  Breakdown breakdown;
  WorkSeconds work{};  // along the critical path
  std::vector<std::string> unknown;
};

/// estimate() of the request, and of the same request with other values of its unknown fields. `streams`: the
/// step of the request alone, operator by operator (explain/streams.h).
RunPrediction predict(const PublishedRun& run, const Calibration& calibration = shipped_calibration(),
                      bool streams = false);

/// Peak as it would have been measured, in GiB.
double observed_gib(const Observation& observed, const Execution& execution, const DeviceSpec& device,
                    const std::vector<RankMemory>& memory);

/// JSON Schema of a line; kept in reports/validation/record.schema.json.
std::string published_run_schema_text();

}  // namespace mpt::planner
