// SPDX-License-Identifier: Apache-2.0
#pragma once

// HardwareCounters: what a GPU counts itself while a program runs on it.

#include <string>
#include <vector>

namespace mpt::runtime {

struct CounterReading {
  std::string gpu;                // its UUID, as the driver's tools write it
  double sm_active = 0.0;         // share of the multiprocessors' cycles with work on them
  double tensor_active = 0.0;     // share of the cycles in which tensor cores were at work
  double dram_share = 0.0;        // of the memory's peak rate
  double dram_bytes_per_s = 0.0;  // read and written
};

class HardwareCounters {
 public:
  virtual ~HardwareCounters() = default;
  /// Means over the time since the last call, or those of the last call where no sample has come since. A GPU
  /// that was never sampled is left out.
  virtual std::vector<CounterReading> read() = 0;
  /// Why GPUs have no reading so far, or none any more, in one line; empty: all have one.
  virtual std::string complaint() { return {}; }
};

}  // namespace mpt::runtime
