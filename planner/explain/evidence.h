// SPDX-License-Identifier: Apache-2.0
#pragma once

// What others' runs say of a prediction: planner/explain/evidence.json, built in, which `./scripts/bench
// accuracy` writes from the runs in reports/validation/.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/fields.h"

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
    v.field("framework", &T::framework, "as in models/frameworks/");
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

/// What runs like the plan's did beside their predictions, and whether the plan leaves room for what most of
/// them held: Plan::evidence. First which runs they are; nothing where none of the plan's framework was
/// published.
std::vector<std::string> evidence_beside(const Plan& plan, const std::vector<Evidence>& all);
/// Bytes of a rank in which plans leave room for what nine in ten of those runs held, where this one does not
/// and as many runs tell it.
std::optional<int64_t> limit_with_room(const Plan& plan, const std::vector<Evidence>& all);
/// The plan's, for a terminal.
std::string describe_evidence(const Plan& plan);

}  // namespace mpt::planner
