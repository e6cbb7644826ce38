// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/kernel_parts.h"

namespace mpt::planner {
namespace {

using profiler::Phase;

// Bytes per element: read for its magnitude; read again and written, in one order or in both.
constexpr double kMagnitudeBytes = 2.0, kOneOrderBytes = 2.0 + 1.0, kBothOrdersBytes = 2.0 + 2.0;

}  // namespace

bool narrows_as_own_runtime(const Execution& execution, const models::OperatorShape& shape) {
  return shape.kind == models::OperatorKind::linear && shape.precision == Precision::fp8 &&
         execution.kernels.narrows_apart;
}

double own_cast_bytes(const models::OperatorShape& s, Phase phase) {
  const double input = double(s.rows) * double(s.inner), gradient = double(s.rows) * double(s.columns);
  return phase == Phase::forward          ? input * (kMagnitudeBytes + kOneOrderBytes)
         : phase == Phase::input_gradient ? gradient * (kMagnitudeBytes + kBothOrdersBytes)
                                          : input * kOneOrderBytes;
}

double other_own_cast_bytes(const models::Operator& op, const Layout& layout, Phase phase) {
  const models::OperatorShape& s = op.shape;
  double bytes = 0.0;
  if (phase == Phase::forward && op.module == models::Module::mlp_down)
    bytes -= double(s.rows) * double(s.inner) * kMagnitudeBytes;
  if (phase == Phase::input_gradient && op.module == models::Module::mlp_up)
    bytes -= double(s.rows) * double(s.columns) * kMagnitudeBytes;
  if (phase != Phase::weight_gradient && layout.zero >= 3)
    bytes += double(s.columns) * double(s.inner) * (kMagnitudeBytes + kOneOrderBytes);
  return bytes;
}

}  // namespace mpt::planner
