// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the readers of a published run make of its record, as JSON.

#include "base/json.h"
#include "planner/validate/predict_run.h"
#include "planner/validate/word_trace.h"

namespace mpt::planner {

/// Holds what differs from defaults, so that thousands of runs stay readable.
Json resolved_run(const RunRecord& run, const RunPrediction& prediction, const WordTrace& trace);

}  // namespace mpt::planner
