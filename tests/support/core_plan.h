// SPDX-License-Identifier: Apache-2.0
#pragma once

// A complete, small plan made from core alone, with made-up footprints and durations: for tests of what reads
// plans, not of what makes them.

#include "core/plan.h"

namespace mpt::test {

/// A GPT-2 style model of `layers` layers, hidden 64, 4 heads.
ModelSpec small_model(int64_t layers = 8);

/// Plan for `small_model` with the given degrees; schedule by name from the catalog; `micro_batches` per
/// step.
Plan core_plan(const std::string& schedule, int64_t pipeline, int64_t chunks, int64_t micro_batches,
               int64_t data = 1, int64_t tensor = 1);

/// Footprints with distinct bytes per stage, so that a mix-up changes a sum.
std::vector<StageFootprint> distinct_footprints(int64_t stages);

/// All of a rank's work on its compute lane: nothing overlaps. Always valid, by the one rule.
StepProgram on_single_lanes(StepProgram program);

}  // namespace mpt::test
