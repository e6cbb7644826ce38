// SPDX-License-Identifier: Apache-2.0
#pragma once

// KernelTrace: every kernel that a device ran, attributed to what the program was doing when it asked for it.

#include <cstdint>
#include <string>
#include <vector>

namespace mpt::runtime {

struct KernelRecord {
  int64_t label = 0;  // of the innermost label() at the launch
  std::string name;
  double start_s = 0.0, seconds = 0.0;  // the device's clock
};

class KernelTrace {
 public:
  virtual ~KernelTrace() = default;
  /// Kernels that the calling thread asks for until unlabel() bear this number, of at least 1.
  virtual void label(int64_t number) = 0;
  virtual void unlabel() = 0;
  /// Labelled kernels since the last call of this, in order of start. The device must be idle.
  virtual std::vector<KernelRecord> take() = 0;
};

}  // namespace mpt::runtime
