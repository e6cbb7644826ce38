// SPDX-License-Identifier: Apache-2.0
#pragma once

// GpuLoad: what the driver says of this host's GPUs at a moment, through NVML, which is loaded when it is
// asked for: there is no header of it in the toolkit, and none is needed.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mpt::runtime {

struct GpuLoad {
  int gpu = 0;
  double busy = 0.0;         // share of the last moments in which a kernel ran
  double memory_busy = 0.0;  // and in which its memory was read or written
  int64_t memory_bytes = 0;  // in use by all processes
  double power_w = 0.0;
  int clock_mhz = 0;  // of the multiprocessors
};

class GpuMonitor {
 public:
  virtual ~GpuMonitor() = default;
  /// One entry per GPU; what a GPU does not tell is 0.
  virtual std::vector<GpuLoad> read() = 0;
};

/// Null without a driver, with the reason.
std::unique_ptr<GpuMonitor> open_gpu_monitor(std::string& reason);

}  // namespace mpt::runtime
