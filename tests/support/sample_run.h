// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/plan.h"
#include "reports/run_result.h"

namespace mpt::test {

/// A plan with all that a report shows, and a run of it that was a tenth slower than predicted.
struct SampleRun {
  Plan plan;
  StepProgram program;
  Timeline predicted;
  reports::RunResult result;
};
SampleRun sample_run(const std::string& schedule = "1f1b", int64_t pipeline = 4, int64_t micro_batches = 8);

}  // namespace mpt::test
