// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a device that trains reaches of what its kernel tables and its data sheet say.

#include "core/cluster_spec.h"
#include "core/layout.h"
#include "planner/cost/calibration.h"

namespace mpt::planner {

struct DeviceRates {
  /// Against the times of the kernel tables; all wait for the slowest of them.
  double kernels = 1.0;
  /// Of the device's products in 16 bits as its data sheet, or that of the tables' device, has it.
  double products_peak = 0.0;
  /// What of it a training sustains, for what no table holds.
  double products_flop_per_s = 0.0;
  double bandwidth_bytes_per_s = 0.0;  // of elementwise kernels
  /// Bytes that casting one element moves, to fp8 with one scale for a matrix, to mxfp8 and to nvfp4.
  double fp8_cast_bytes = 0.0, mxfp8_cast_bytes = 0.0, nvfp4_cast_bytes = 0.0;

  double cast_bytes(Precision precision) const {
    if (!is_narrow(precision)) return 0.0;
    return precision == Precision::fp8     ? fp8_cast_bytes
           : precision == Precision::mxfp8 ? mxfp8_cast_bytes
                                           : nvfp4_cast_bytes;
  }
};

DeviceRates rates_of(const ClusterSpec& cluster, const Calibration& calibration);

}  // namespace mpt::planner
