// SPDX-License-Identifier: Apache-2.0
#pragma once

// KernelTrace: the kernels that a device ran, for any caller.

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
  /// Kernels since the last call of take(). The device must be idle.
  virtual std::vector<KernelRecord> take() = 0;
};

/// Traces kernels by CUPTI's activity records, which need no administrator rights. A process has one trace.
/// It stays enabled, because some versions of CUPTI crash when it is disabled.
std::unique_ptr<KernelTrace> make_cupti_trace(std::string& reason);

}  // namespace mpt::runtime
