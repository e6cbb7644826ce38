// SPDX-License-Identifier: Apache-2.0
#pragma once

// What others' runs say of a prediction: planner/explain/evidence.json, built in, which `./scripts/bench
// accuracy` writes from the runs in reports/validation/.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"

namespace mpt {
struct Plan;
}

namespace mpt::planner {

/// Published runs of models with or without experts in one framework.
struct Evidence {
  std::string framework;
  bool experts = false;
  std::vector<double> step_time, peak_memory;  // measured over predicted, ascending
  std::vector<double> failed;  // predicted peaks over a rank's room, where memory ran out; ascending

  template <class V>
  static void describe(V& v) {
    using T = Evidence;
    v.field("framework", &T::framework, "as in frameworks/ and reports/validation/frameworks/");
    v.field("experts", &T::experts, "whether the models have experts");
    v.field("step_time", &T::step_time, "measured over predicted, ascending", between(0.01, 100));
    v.field("peak_memory", &T::peak_memory, "measured over predicted, ascending", between(0.01, 100));
    v.field("failed", &T::failed, "predicted over a rank's room where memory ran out, ascending",
            between(0.01, 100));
  }
};

std::vector<Evidence> published_evidence();

/// The value below which `share` of the ascending `values` lie, between neighbours in proportion. At least
/// one.
double quantile(const std::vector<double>& values, double share);

/// Seconds of the plan's step by what eight in ten of those runs took beside their predictions.
struct ExpectedStep {
  double least_s = 0.0, most_s = 0.0;
  size_t runs = 0;
  std::string framework;
};
/// Nothing where too few runs tell it, or where they say nothing of the plan's prices: those of a measured
/// machine, and of a GPU without measured kernels.
std::optional<ExpectedStep> expected_step(const Plan& plan, const std::vector<Evidence>& all);

/// What a GPU's memory is divided by so that a plan has room: nine in ten published runs used at most that
/// many times their prediction.
struct MemoryMargin {
  double factor = 1.0;
  size_t runs = 0;         // that say it; 0: no margin
  bool of_others = false;  // too few of the framework's own: runs of all frameworks

  /// Of a GPU that may use `usable_bytes`, in whole tenths of a GiB.
  int64_t safe_bytes(int64_t usable_bytes) const;
  /// "9 of 10 published megatron-core runs".
  std::string words(const std::string& framework) const;
};
/// No margin for mpt-run, whose memory is counted exactly.
MemoryMargin memory_margin(const std::string& framework, bool experts, const std::vector<Evidence>& all);

/// A plan that fills memory more than those runs advise.
struct MemoryRisk {
  std::string why;             // one plain sentence without its full stop
  int64_t safe_bytes = 0;      // of a GPU, in whole tenths of a GiB: plans within it have room
  std::string option() const;  // "--memory=72.6GiB": one word, which no line breaks
};
/// Whether the plan exceeds memory_margin(). Mixed clusters have room of their own: nothing.
std::optional<MemoryRisk> memory_risk(const Plan& plan, const std::vector<Evidence>& all);

/// Plan::evidence: what those runs took and used beside their predictions, and what that says of the plan.
/// First which runs they are; nothing where none of the plan's framework was published.
std::vector<std::string> evidence_beside(const Plan& plan, const std::vector<Evidence>& all);

}  // namespace mpt::planner
