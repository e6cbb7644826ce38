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

/// Whether the run sends modules' activations there.
bool offloads_modules(const RunRecord& run);

/// Adds what schedules that defer weight gradients leave pending beyond the simulated program.
void fill_pending_work(const RunRecord& run, const Estimate& estimate, int64_t micro_batches,
                       std::vector<RankMemory>& memory);

/// What was measured of the memory: ranks `first` to before `end`, and what its reader counts.
struct MemoryReading {
  size_t first = 0, end = 0;
  bool whole_device = false, reserved = false;
};
MemoryReading memory_reading(const RunRecord& run, size_t ranks);

/// Peak in the terms of the measured value: of the rank that was looked at, and with what its reader counts.
double peak_gib(const RunRecord& run, const Execution& execution, const DeviceSpec& device,
                const std::vector<RankMemory>& memory);

}  // namespace mpt::planner
