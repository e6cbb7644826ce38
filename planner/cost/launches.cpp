// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/kernel_parts.h"

#include <algorithm>

namespace mpt::planner {

using models::OperatorKind;
using models::OperatorShape;

Launches launches_of_expert(bool fp8) { return fp8 ? Launches{5, 5, 3} : Launches{1, 1, 1}; }

namespace {

struct LaunchesOfKind {
  OperatorKind kind;
  Launches fused, eager;  // forward, input gradient, weight gradient
};
constexpr LaunchesOfKind kLaunches[] = {{OperatorKind::linear, {2, 2, 2}, {2, 2, 2}},
                                        {OperatorKind::attention, {3, 4, 0}, {3, 4, 0}},
                                        {OperatorKind::norm, {1, 2, 0}, {4, 6, 0}},
                                        {OperatorKind::activation, {1, 1, 0}, {2, 4, 0}},
                                        {OperatorKind::residual_add, {1, 1, 0}, {2, 2, 0}},
                                        {OperatorKind::rotary, {2, 2, 0}, {10, 12, 0}},
                                        {OperatorKind::router, {12, 12, 0}, {12, 12, 0}},
                                        {OperatorKind::embedding, {3, 3, 0}, {3, 3, 0}},
                                        {OperatorKind::cross_entropy, {12, 6, 0}, {12, 6, 0}},
                                        {OperatorKind::index, {8, 0, 0}, {8, 0, 0}},
                                        {OperatorKind::convolution, {1, 2, 0}, {1, 2, 0}},
                                        {OperatorKind::recurrence, {6, 10, 0}, {6, 10, 0}},
                                        {OperatorKind::widen, {1, 1, 0}, {1, 1, 0}}};

// In addition to the products, tokens are sorted, weighted and split.
Launches launches_of_experts(const OperatorShape& s, bool fused) {
  if (fused) return {6, 6, 4};
  const Launches each = launches_of_expert(is_narrow(s.precision));
  const double experts = double(std::max<int64_t>(1, s.batch));
  return {5 + experts * each.forward, 5 + experts * each.input_gradient, 3 + experts * each.weight_gradient};
}

}  // namespace

Launches launches_of(const OperatorShape& s, const Execution& e) {
  if (s.kind == OperatorKind::expert_linear) return launches_of_experts(s, e.kernels.fuses_experts);
  if (s.kind == OperatorKind::norm && s.extra) return {8, 16, 0};
  if (s.kind == OperatorKind::attention && e.kernels.attention == AttentionKernel::unfused) return {8, 12, 0};
  if (s.kind == OperatorKind::attention && e.kernels.attention == AttentionKernel::plain) return {18, 14, 0};
  const auto found = std::find_if(std::begin(kLaunches), std::end(kLaunches),
                                  [&](const LaunchesOfKind& row) { return row.kind == s.kind; });
  return e.kernels.elementwise == ElementwiseKernels::eager ? found->eager : found->fused;
}

}  // namespace mpt::planner
