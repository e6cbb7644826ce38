// SPDX-License-Identifier: Apache-2.0
#pragma once

// GpuLoad: the driver's current readings of this host's GPUs, through NVML. NVML is loaded on demand: the
// toolkit has no header of it, and none is needed.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fields.h"

namespace mpt::runtime {

struct GpuLoad {
#include "generated/GpuLoad.inc"
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
