// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/kernel_parts.h"

#include <algorithm>

namespace mpt::planner {

using models::OperatorKind;
using models::OperatorShape;

Launches launches_of_expert(bool fp8) { return fp8 ? Launches{5, 5, 3} : Launches{1, 1, 1}; }

Launches launches_of(const OperatorShape& s, const Execution& e) {
  const bool eager = e.kernels.elementwise == ElementwiseKernels::eager;
  switch (s.kind) {
    case OperatorKind::linear:
      return {2, 2, 2};
    case OperatorKind::expert_linear: {
      // In addition to the products, tokens are sorted, weighted and split.
      if (e.kernels.fuses_experts) return {6, 6, 4};
      const Launches each = launches_of_expert(is_narrow(s.precision));
      const double experts = double(std::max<int64_t>(1, s.batch));
      return {5 + experts * each.forward, 5 + experts * each.input_gradient,
              3 + experts * each.weight_gradient};
    }
    case OperatorKind::attention:
      if (e.kernels.attention == AttentionKernel::unfused) return {8, 12, 0};
      if (e.kernels.attention == AttentionKernel::plain) return {18, 14, 0};
      return {3, 4, 0};
    case OperatorKind::norm:
      if (s.extra) return {8, 16, 0};
      return eager ? Launches{4, 6, 0} : Launches{1, 2, 0};
    case OperatorKind::activation:
      return eager ? Launches{2, 4, 0} : Launches{1, 1, 0};
    case OperatorKind::residual_add:
      return eager ? Launches{2, 2, 0} : Launches{1, 1, 0};
    case OperatorKind::rotary:
      return eager ? Launches{10, 12, 0} : Launches{2, 2, 0};
    case OperatorKind::router:
      return {12, 12, 0};
    case OperatorKind::embedding:
      return {3, 3, 0};
    case OperatorKind::cross_entropy:
      return {12, 6, 0};
    case OperatorKind::index:
      return {8, 0, 0};
    case OperatorKind::convolution:
      return {1, 2, 0};
    case OperatorKind::recurrence:
      return {6, 10, 0};
    case OperatorKind::widen:
      return {1, 1, 0};
  }
  return {};
}

}  // namespace mpt::planner
