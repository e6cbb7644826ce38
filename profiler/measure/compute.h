// SPDX-License-Identifier: Apache-2.0
#pragma once

// Times the pieces of a model on the very layers that the runtime executes, on one rank of a tensor-parallel
// group: sizes of 1/t, without the group's collectives, which are measured apart (measure/transport.h).

#include <functional>
#include <vector>

#include "profiler/hardware/profile.h"
#include "profiler/measure/stopping_rule.h"
#include "profiler/measure/target.h"

namespace mpt::profiler {

struct ComputeRequest {
  ModelSpec model;
  int64_t sequence = 0;
  Precision precision = Precision::fp32;
  std::vector<int64_t> micro_batches;
  std::vector<int64_t> tensors;
  StoppingRule rule;
  Target target;
};

/// Instances of a piece that measure_pieces() keeps in memory at once, each with a micro-batch in flight.
inline constexpr int kPieceInstances = 2;

/// Keeps a GPU busy until its rate no longer changes, as its clocks settle.
void warm_up(const Target& target);

/// Called after each measurement, for progress.
using OnMeasured = std::function<void()>;

/// Of every kind of layer, and of the embedding and the head.
std::vector<PieceTiming> measure_pieces(const ComputeRequest& request, const OnMeasured& on_measured);
/// Whose operators are timed: on CPUs the largest stands for all, GPUs are quick enough for each.
std::vector<int64_t> operator_micro_batches(const ComputeRequest& request);
std::vector<OperatorTiming> measure_operators(const ComputeRequest& request, const OnMeasured& on_measured);

/// How often the two above call `on_measured` together.
int64_t layer_measurements(const ComputeRequest& request);

/// What each operator runs on the GPU, one run each. Empty if kernels cannot be traced, with the reason.
std::vector<KernelTiming> trace_kernels(const ComputeRequest& request, std::string& reason);

/// The rates of one device go into `profile`.
void measure_rates(const StoppingRule& rule, const Target& target, const OnMeasured& on_measured,
                   Profile& profile);

/// Speed of each of 1 .. `most_ranks` ranks that compute a layer at once, relative to one alone; never
/// rising.
std::vector<double> measure_concurrency(const ComputeRequest& request, int most_ranks,
                                        const OnMeasured& on_measured);

}  // namespace mpt::profiler
