// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/device_rates.h"

#include <cmath>

#include "profiler/hardware/catalog.h"

namespace mpt::planner {
namespace {

// `kernel_rate` is relative to the tables' device: its peak counts, up to the peak of this device.
double products_peak(const DeviceSpec& device) {
  const auto measured = device.kernels.empty() || device.kernels == device.name
                            ? std::nullopt
                            : profiler::cluster_of_device(device.kernels, {});
  if (!measured) return device.bf16_flop_per_s;
  return std::min(device.bf16_flop_per_s, measured->device.bf16_flop_per_s * device.kernel_rate);
}

double straggling(const ClusterSpec& cluster, const Calibration& c) {
  // The outermost level reaches all ranks, also for a part of a mixed cluster.
  const double nodes = double(cluster.levels.back().group_size) /
                       double(std::max<int64_t>(1, cluster.levels.front().group_size));
  return 1.0 + c.straggler_per_doubling * std::log2(std::max(1.0, nodes));
}

}  // namespace

DeviceRates rates_of(const ClusterSpec& cluster, const Calibration& c) {
  const DeviceSpec& device = cluster.device;
  const double sustained = c.sustained / straggling(cluster, c);
  DeviceRates r;
  r.kernels = device.kernel_rate * sustained;
  r.products_peak = products_peak(device);
  r.products_flop_per_s = r.products_peak * sustained;
  r.bandwidth_bytes_per_s = device.memory_bandwidth_bytes_per_s * c.bandwidth_share;
  // Devices that multiply mxfp8 read matrices with one scale in any order.
  r.fp8_cast_bytes = device.mxfp8 ? c.untransposed_cast_bytes : c.fp8_cast_bytes;
  r.mxfp8_cast_bytes = c.fp8_cast_bytes;
  r.nvfp4_cast_bytes = c.nvfp4_cast_bytes;
  return r;
}

}  // namespace mpt::planner
