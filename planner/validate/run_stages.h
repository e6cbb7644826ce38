// SPDX-License-Identifier: Apache-2.0
#pragma once

// Runs whose source gives their stages one by one: each may be of another width, and recompute another share
// of its operators. Neither the planner nor the runtime has such layouts; a prediction needs no more than
// each stage's memory and time.

#include "planner/search/evaluate.h"
#include "planner/validate/run_record.h"

namespace mpt::planner {

/// Whether the run's stages differ in what one layout cannot say.
bool has_unlike_stages(const RunRecord& run, const Layout& layout);

/// Each stage as it is in a layout in which all are as wide as it and recompute as much. Throws UserError
/// where a stage's ranks do not divide the model or the micro-batch.
Estimate estimate_stage_by_stage(const SearchProblem& problem, const RunRecord& run, const Layout& layout);

}  // namespace mpt::planner
