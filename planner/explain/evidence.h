// SPDX-License-Identifier: Apache-2.0
#pragma once

// What others' runs took and used beside their predictions: planner/explain/evidence.json, built in, which
// `./scripts/bench accuracy` writes from the runs in reports/validation/. planner/explain/confidence.h says
// what that tells of a plan.

#include <cstdint>
#include <string>
#include <vector>

#include "base/fields.h"

namespace mpt::planner {

/// Runs that one source published.
struct SourceEvidence {
  std::string source;
  std::vector<double> step_time, peak_memory;  // measured over predicted, ascending
  std::vector<double> failed;  // predicted peaks over a rank's room, where memory ran out; ascending
  int64_t ran = 0;             // runs that did not run out, whose peaks were not published

  template <class V>
  static void describe(V& v) {
    using T = SourceEvidence;
    v.field("source", &T::source, "family of the runs in reports/validation/");
    v.field("step_time", &T::step_time, "measured over predicted, ascending",
            optional_field(between(0.01, 100)));
    v.field("peak_memory", &T::peak_memory, "measured over predicted, ascending",
            optional_field(between(0.01, 100)));
    v.field("failed", &T::failed, "predicted over a rank's room where memory ran out, ascending",
            optional_field(between(0.01, 100)));
    v.field("ran", &T::ran, "runs that did not run out, whose peaks were not published",
            optional_field(between(0, 1e6)));
  }
};

/// Of models with or without experts in one framework.
struct Evidence {
  std::string framework;
  bool experts = false;
  std::vector<SourceEvidence> sources;

  template <class V>
  static void describe(V& v) {
    using T = Evidence;
    v.field("framework", &T::framework, "as in frameworks/ and reports/validation/frameworks/");
    v.field("experts", &T::experts, "whether the models have experts");
    v.field("sources", &T::sources, "runs by who published them");
  }
};

std::vector<Evidence> published_evidence();

}  // namespace mpt::planner
