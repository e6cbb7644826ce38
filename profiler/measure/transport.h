// SPDX-License-Identifier: Apache-2.0
#pragma once

// Times the transport that the runtime uses between ranks of one machine: threads, or NCCL between its GPUs.

#include <vector>

#include "profiler/hardware/profile.h"
#include "profiler/measure/compute.h"

namespace mpt::profiler {

/// Every operation over message sizes and groups of 2 .. `most_ranks` (powers of two); the slowest rank's
/// median.
std::vector<TransportTiming> measure_transport(int64_t most_ranks, const StoppingRule& rule,
                                               const Target& target, const OnMeasured& on_measured);

/// nccl-tests' bus bandwidth: what a link carries, whatever the group's size (its doc/PERFORMANCE.md).
double bus_bandwidth_bytes_per_s(const TransportTiming& timing);

}  // namespace mpt::profiler
