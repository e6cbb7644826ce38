// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/plan_notes.h"

#include <fmt/format.h>

#include "models/layer_kinds.h"
#include "models/layer_program.h"
#include "planner/cost/attention_cost.h"

namespace mpt::planner {
namespace {

bool is_scalar(const models::LayerProgram& layer, const Plan& plan, const DeviceSpec& device) {
  return any_of(layer.operators, [&](const models::Operator& op) {
    return runtime_kernel(op.shape, plan.layout.execution, device) == RuntimeAttention::scalar;
  });
}

}  // namespace

std::vector<std::string> with_kernel_note(std::vector<std::string> notes, const Plan& plan) {
  const models::LayerKinds kinds(plan.model);
  int64_t layers = 0;
  for (size_t k = 0; k < kinds.size(); ++k) {
    const auto layer = models::layer_program(plan.model, kinds.kind(k), plan.layout, plan.workload.sequence);
    bool scalar = is_scalar(layer, plan, plan.cluster.device);
    for (const DeviceGroup& group : plan.cluster.groups) scalar |= is_scalar(layer, plan, group.device);
    if (scalar) layers += kinds.all()[k];
  }
  if (layers == 0) return notes;
  notes.push_back(fmt::format(
      "mpt-run has no fast GPU kernel for the attention of {} of {} layers. Windows, soft caps, other "
      "factors "
      "on scores, values of another size than keys, and fp32 run on its scalar kernel, far below the rate of "
      "tensor cores; the step time counts that. Other frameworks have fast kernels (--framework)",
      layers, plan.model.layers.count()));
  return notes;
}

}  // namespace mpt::planner
