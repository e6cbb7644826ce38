// SPDX-License-Identifier: Apache-2.0
#pragma once

// Published runs of others compared with their predictions, and the expected error for a run of a new kind.
// The data are planner/explain/evidence.json, built in, which `./scripts/bench accuracy` writes from the runs
// in reports/validation/. planner/explain/confidence.h applies them to a plan.

#include <string>
#include <vector>

#include "base/fields.h"
#include "core/layout.h"
#include "core/model_spec.h"

namespace mpt::planner {

/// The properties that decide whether runs are evidence for each other, in words. A part is empty in the
/// plain case: attention to all tokens and dense MLPs, 16 bits, all weights trained.
struct RunKind {
#include "generated/RunKind.inc"

  bool has_experts() const { return !layers.empty() && layers.front() == kExperts; }
  bool is_narrow() const { return !precision.empty() && precision.front() != "fp32"; }
  static constexpr const char* kExperts = "experts";
};
RunKind kind_of(const ModelSpec& model, const std::string& framework, Precision precision,
                const Training& training);
RunKind kind_of(const ModelSpec& model, const Layout& layout);

/// Runs that one source published.
struct SourceEvidence {
#include "generated/SourceEvidence.inc"
};

/// Evidence of one kind.
struct Evidence {
#include "generated/Evidence.inc"
};

const std::vector<Evidence>& published_evidence();

/// Additional standard deviations of the logarithms of measured over predicted values if a kind is new in one
/// part. They were found by leaving out each kind.
struct NewKind {
#include "generated/NewKind.inc"
};

/// For the software, then for each further part of a kind in order; built in.
const std::vector<NewKind>& new_kind_deviations();

}  // namespace mpt::planner
