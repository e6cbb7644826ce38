// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rates that a device reaches in training, from its kernel tables and its data sheet.

#include "core/cluster_spec.h"
#include "core/layout.h"
#include "planner/cost/calibration.h"

namespace mpt::planner {

struct DeviceRates {
  /// Rate relative to the kernel tables. All devices wait for the slowest one.
  double kernels = 1.0;
  /// Peak of 16-bit products, from the data sheet of the device or of the tables' device.
  double products_peak = 0.0;
  /// The sustained part of it in training, for products that no table has.
  double products_flop_per_s = 0.0;
  double bandwidth_bytes_per_s = 0.0;  // of elementwise kernels
  /// Bytes moved per element by a cast to fp8 with one scale for a matrix, to mxfp8 and to nvfp4.
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
