// SPDX-License-Identifier: Apache-2.0
#pragma once

// Times the pieces of a model with the layers that the runtime executes, on one rank of a tensor-parallel
// group. Sizes are 1/t. The group's collectives are measured separately (measure/transport.h).

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

/// Times every kind of layer, the embedding and the head.
std::vector<PieceTiming> measure_pieces(const ComputeRequest& request, const OnMeasured& on_measured);
/// The micro-batches at which operators are timed: on CPUs the largest only, on GPUs each, for they are fast.
std::vector<int64_t> operator_micro_batches(const ComputeRequest& request);
std::vector<OperatorTiming> measure_operators(const ComputeRequest& request, const OnMeasured& on_measured);

/// How often measure_pieces() and measure_operators() together call `on_measured`.
int64_t layer_measurements(const ComputeRequest& request);

/// The kernels that each operator runs on the GPU, from one run each. If tracing fails: none, and `reason`.
std::vector<KernelTiming> trace_kernels(const ComputeRequest& request, std::string& reason);

/// Measures the rates of one device into `profile`.
void measure_rates(const StoppingRule& rule, const Target& target, const OnMeasured& on_measured,
                   Profile& profile);

/// Speed of each of 1 .. `most_ranks` ranks that compute a layer at once, relative to one alone. It never
/// rises with the number.
std::vector<double> measure_concurrency(const ComputeRequest& request, int most_ranks,
                                        const OnMeasured& on_measured);

}  // namespace mpt::profiler
