// SPDX-License-Identifier: Apache-2.0
#pragma once

// CounterMetrics: which hardware counters a chip has to be told to count, and what they mean: the half of
// CUPTI's profiling that works on the host, and needs no GPU. CounterMean sums up what they say.

#include <cupti_profiler_host.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/device/hardware_counters.h"

namespace mpt::runtime {

/// NVIDIA's names. Percents are of what the unit could do in every cycle of the sample.
inline constexpr std::array kCounterMetrics{
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes.sum",
};
/// Of one sample, in that order.
using CounterValues = std::array<double, kCounterMetrics.size()>;

class CounterMetrics {
 public:
  /// `chip` as CUPTI calls it, such as GH100. `availability` tells what of it this machine may count; empty:
  /// all. Throws CuptiError where the chip has no such counters.
  CounterMetrics(const std::string& chip, std::vector<uint8_t> availability);

  /// What the GPU is set up with.
  const std::vector<uint8_t>& configuration() const { return configuration_; }
  /// How often the same work has to run until everything is counted; samples over time need 1.
  size_t passes();
  /// Of a sample in what the GPU's records were decoded to.
  CounterValues values_of(const std::vector<uint8_t>& counter_data, size_t sample);

 private:
  struct Deinitialize {
    void operator()(CUpti_Profiler_Host_Object* host) const;
  };

  std::vector<uint8_t> availability_;  // which the host object may go on to read
  std::unique_ptr<CUpti_Profiler_Host_Object, Deinitialize> host_;
  std::vector<uint8_t> configuration_;
};

/// Of samples of unlike length.
class CounterMean {
 public:
  /// From start to end, by the GPU's clock. What has no length, or was not counted, is left out: false.
  bool add(uint64_t start_ns, uint64_t end_ns, const CounterValues& values);
  /// Of all samples since the last call; nothing if there was none.
  std::optional<CounterReading> take();

 private:
  double seconds_ = 0.0, bytes_ = 0.0;
  std::array<double, 3> percent_seconds_{};
};

}  // namespace mpt::runtime
