// SPDX-License-Identifier: Apache-2.0
#pragma once

// Published runs of others compared with their predictions, and the expected error for a run of a new kind.
// The data are planner/explain/evidence.json, built in, which `./scripts/bench accuracy` writes from the runs
// in reports/validation/. planner/explain/confidence.h applies them to a plan.

#include <cstdint>
#include <string>
#include <vector>

#include "base/fields.h"
#include "core/layout.h"
#include "core/model_spec.h"

namespace mpt::planner {

/// The properties that decide whether runs are evidence for each other, in words. A part is empty in the
/// plain case: attention to all tokens and dense MLPs, 16 bits, all weights trained.
struct RunKind {
  std::string framework;
  std::vector<std::string> layers = {}, precision = {}, training = {};

  bool has_experts() const { return !layers.empty() && layers.front() == kExperts; }
  bool is_narrow() const { return !precision.empty() && precision.front() != "fp32"; }
  static constexpr const char* kExperts = "experts";

  static void describe(auto& v) {
    using T = RunKind;
    v.field("framework", &T::framework, "as in frameworks/ and reports/validation/frameworks/");
    v.field("layers", &T::layers, "what some have beside attention to all tokens and dense MLPs",
            rare_field());
    v.field("precision", &T::precision, "of products, where it is not 16 bits", rare_field());
    v.field("training", &T::training, "what is not trained", rare_field());
  }
};
RunKind kind_of(const ModelSpec& model, const std::string& framework, Precision precision,
                const Training& training);
RunKind kind_of(const ModelSpec& model, const Layout& layout);

/// Runs that one source published.
struct SourceEvidence {
  std::string source;
  std::vector<double> step_time, peak_memory;  // measured over predicted, ascending
  std::vector<double> failed;  // predicted peaks over a rank's limit, where memory ran out; ascending
  int64_t ran = 0;             // runs that fitted, with unpublished peaks

  static void describe(auto& v) {
    using T = SourceEvidence;
    const FieldRule ratio = optional_field(between(0.01, 100));
    v.field("source", &T::source, "family of the runs in reports/validation/");
    v.field("step_time", &T::step_time, "measured over predicted, ascending", ratio);
    v.field("peak_memory", &T::peak_memory, "measured over predicted, ascending", ratio);
    v.field("failed", &T::failed, "predicted over a rank's room where memory ran out, ascending", ratio);
    v.field("ran", &T::ran, "runs that did not run out, whose peaks were not published",
            optional_field(between(0, 1e6)));
  }
};

/// Evidence of one kind.
struct Evidence {
  RunKind kind;
  std::vector<SourceEvidence> sources;

  static void describe(auto& v) {
    describe_part(v, &Evidence::kind);
    v.field("sources", &Evidence::sources, "runs by who published them");
  }
};

const std::vector<Evidence>& published_evidence();

/// Additional standard deviations of the logarithms of measured over predicted values if a kind is new in one
/// part. They were found by leaving out each kind.
struct NewKind {
  std::string part;
  double step_time = 0.0, peak_memory = 0.0;
  std::string source;

  static void describe(auto& v) {
    using T = NewKind;
    v.field("part", &T::part, "part of a kind");
    v.field("step_time", &T::step_time, "deviation of step times", between(0, 10));
    v.field("peak_memory", &T::peak_memory, "deviation of peaks", between(0, 10));
    v.field("source", &T::source, "what it was found from", long_text());
  }
};

/// For the software, then for each further part of a kind in order; built in.
const std::vector<NewKind>& new_kind_deviations();

}  // namespace mpt::planner
