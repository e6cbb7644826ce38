// SPDX-License-Identifier: Apache-2.0
#pragma once

// The time of an attention core. A flash kernel is priced by the tables' rates for its lengths and heads, a
// kernel that writes its scores to memory by the bytes that it moves.

#include <optional>

#include "core/cluster_spec.h"
#include "core/execution.h"
#include "models/operator.h"
#include "planner/cost/calibration.h"
#include "planner/cost/device_rates.h"
#include "profiler/hardware/kernel_tables.h"
#include "profiler/hardware/profile.h"

namespace mpt::planner {

/// The runtime's kernel of an attention core, as the device chooses it if cuDNN is installed; nothing if
/// another framework runs.
std::optional<RuntimeAttention> runtime_kernel(const models::OperatorShape& shape, const Execution& execution,
                                               const DeviceSpec& device);
/// Seconds of the kernels of this project's runtime, if they are used; nothing if cuDNN's or another
/// framework's are. `products_flop_per_s`: of the device's products in 16 bits.
std::optional<double> own_kernel_s(const models::OperatorShape& shape, bool forward,
                                   const Execution& execution, const DeviceSpec& device,
                                   double products_flop_per_s, const Calibration& c);

class AttentionCost {
 public:
  /// Keeps references to all but the calibration and the rates. `own`: the user's measurements; may be null.
  AttentionCost(const DeviceSpec& device, const Execution& execution, const profiler::KernelTables& tables,
                const profiler::KernelTables* own, const Calibration& calibration, const DeviceRates& rates)
      : device_(device), execution_(execution), tables_(tables), own_(own), c_(calibration), rates_(rates) {}

  /// Seconds of an attention operator; 0 for its weight gradient.
  double seconds(const models::OperatorShape& shape, profiler::Phase phase) const;

 private:
  double flash_s(const models::OperatorShape& shape, bool forward) const;
  double scores_s(const models::OperatorShape& shape, bool forward) const;
  std::optional<double> as_measured_s(const models::OperatorShape& shape, bool forward, double flop) const;
  double share_of_forward(const models::OperatorShape& shape, bool forward, double sequence) const;
  bool is_ampere() const;
  AttentionKernel kernel() const;
  double most_flop_per_s(bool forward, double sequence) const;
  double casts_s(const models::OperatorShape& shape, bool forward) const;
  bool runs_narrow(const models::OperatorShape& shape) const;

  const DeviceSpec& device_;
  const Execution& execution_;
  const profiler::KernelTables& tables_;
  const profiler::KernelTables* own_;
  const Calibration c_;
  const DeviceRates rates_;
};

}  // namespace mpt::planner
