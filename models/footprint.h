// SPDX-License-Identifier: Apache-2.0
#pragma once

// Footprints: the bytes of each virtual stage under a layout, summed over the stage's layer programs. What
// lower() and the memory prediction read, and what a run's arena must measure.

#include <vector>

#include "core/layout.h"
#include "core/model_spec.h"
#include "core/stage_footprint.h"

namespace mpt::models {

StageFootprint stage_footprint(const ModelSpec& model, const Layout& layout, const Workload& workload,
                               const StageContent& content);

/// One per virtual stage, in model order; the tied embedding is shared where first and last stage are apart.
std::vector<StageFootprint> stage_footprints(const ModelSpec& model, const Layout& layout,
                                             const Workload& workload);

}  // namespace mpt::models
