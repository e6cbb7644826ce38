// SPDX-License-Identifier: Apache-2.0
#pragma once

// GpuLoad: the driver's current readings of this host's GPUs, through NVML. NVML is loaded on demand: the
// toolkit has no header of it, and none is needed.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mpt::runtime {

struct GpuLoad {
  int gpu = 0;
  double busy = 0.0;         // share of recent time in which a kernel ran
  double memory_busy = 0.0;  // and in which memory was read or written
  int64_t memory_bytes = 0;  // in use by all processes
  double power_w = 0.0;
  int clock_mhz = 0;  // of the multiprocessors
};

class GpuMonitor {
 public:
  virtual ~GpuMonitor() = default;
  /// One entry per GPU; values that a GPU does not report are 0.
  virtual std::vector<GpuLoad> read() = 0;
};

/// Null if there is no driver, with the reason.
std::unique_ptr<GpuMonitor> open_gpu_monitor(std::string& reason);

}  // namespace mpt::runtime
