// SPDX-License-Identifier: Apache-2.0
#pragma once

// Memory of a published run where its program does not say all of it, in the terms of whoever measured it.

#include <vector>

#include "planner/search/evaluate.h"
#include "planner/validate/run_record.h"

namespace mpt::planner {

/// Takes activations that the run keeps in the host's memory out of the evaluation's. Returns of how many
/// layers.
int64_t offload_activations(const RunRecord& run, const SearchProblem& problem, const Estimate& estimate,
                            Evaluation& evaluation);

/// Takes what Megatron-LM sends to the host's memory module by module out of what stages keep; one layer of
/// it is always on its way.
void offload_modules(const RunRecord& run, const SearchProblem& problem, Estimate& estimate);

/// Adds what schedules that defer weight gradients leave pending beyond the simulated program.
void fill_pending_work(const RunRecord& run, const Estimate& estimate, int64_t micro_batches,
                       std::vector<RankMemory>& memory);

/// Peak in the terms of the measured value: of the rank that was looked at, and with what its reader counts.
double peak_gib(const RunRecord& run, const Execution& execution, const DeviceSpec& device,
                const std::vector<RankMemory>& memory);

}  // namespace mpt::planner
