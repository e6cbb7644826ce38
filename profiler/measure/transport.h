// SPDX-License-Identifier: Apache-2.0
#pragma once

// Times the runtime's transport between ranks: threads of this machine, NCCL between its GPUs, or the network
// between the hosts of a launcher's processes.

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

/// Times every operation over message sizes, in groups of 2, 4, ... ranks of one host, of one rank on each of
/// 2, 4, ... hosts, and of all ranks of those hosts. A time is the slowest rank's median. All processes must
/// call it. Throws RunError or CommunicationError if an operation fails.
TransportTimings measure_transport(const TransportRequest& request, const OnMeasured& on_measured);

/// Bus bandwidth as in nccl-tests: the load of a link, whatever the group's size (its doc/PERFORMANCE.md).
double bus_bandwidth_bytes_per_s(const TransportTiming& timing);

}  // namespace mpt::profiler
