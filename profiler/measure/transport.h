// SPDX-License-Identifier: Apache-2.0
#pragma once

// Times the transport that the runtime uses between ranks: threads of this machine, NCCL between its GPUs, or
// what joins the hosts of the processes that a launcher started.

#include <optional>
#include <vector>

#include "profiler/hardware/profile.h"
#include "profiler/measure/compute.h"
#include "runtime/comm/sockets/launch.h"

namespace mpt::profiler {

struct TransportRequest {
  int64_t most_ranks = 1;                   // in this process
  std::optional<runtime::Launch> launch{};  // this process is one of several
  StoppingRule rule;
  Target target;
};

struct TransportTimings {
  int64_t hosts = 1;
  std::vector<TransportTiming> timings;  // in the first process
};

/// Every operation over message sizes and groups of 2, 4, ... ranks of a host, of one rank on each of as many
/// hosts, and of all ranks of as many hosts; the slowest rank's median. All processes call it alike. Throws
/// RunError or CommunicationError if one fails.
TransportTimings measure_transport(const TransportRequest& request, const OnMeasured& on_measured);

/// nccl-tests' bus bandwidth: what a link carries, whatever the group's size (its doc/PERFORMANCE.md).
double bus_bandwidth_bytes_per_s(const TransportTiming& timing);

}  // namespace mpt::profiler
