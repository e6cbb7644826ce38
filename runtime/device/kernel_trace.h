// SPDX-License-Identifier: Apache-2.0
#pragma once

// KernelTrace: the kernels that a device ran, whoever asked for them.

#include <memory>
#include <string>
#include <vector>

namespace mpt::runtime {

struct KernelRecord {
  std::string name;
  double seconds = 0.0;  // by the device's clock
};

class KernelTrace {
 public:
  virtual ~KernelTrace() = default;
  /// Kernels since the last call of this. The device must be idle.
  virtual std::vector<KernelRecord> take() = 0;
};

/// Kernels through CUPTI's activity records, which need no administrator rights. One trace per process; it
/// stays enabled, for some versions of CUPTI do not survive being disabled.
std::unique_ptr<KernelTrace> make_cupti_trace(std::string& reason);

}  // namespace mpt::runtime
