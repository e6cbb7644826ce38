// SPDX-License-Identifier: Apache-2.0
#pragma once

// GpuMonitor: the driver's current readings of a GPU of this host, through NVML. NVML is loaded on demand:
// the toolkit has no header of it, and none is needed.

#include <memory>
#include <string>

#include "reports/run_result.h"

namespace mpt::runtime {

class GpuMonitor {
 public:
  virtual ~GpuMonitor() = default;
  /// Fills in what the GPU at this bus reports. Any thread may call it.
  virtual void read(const std::string& bus_id, reports::RankRecord& into) const = 0;
};

/// Null if there is no driver, with a note on stderr.
std::unique_ptr<GpuMonitor> open_gpu_monitor();

}  // namespace mpt::runtime
