// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/norm.h"

namespace mpt::runtime {

Norm::Norm(const std::string& name, const RankSizes& sizes, Parameters& parameters, Device& device,
           int64_t width)
    : parameters_(parameters), device_(device), shape_(sizes.norm()) {
  if (width > 0) shape_.columns = width;
  Parameter scale;
  scale.name = name + ".scale";
  scale.global_rows = shape_.columns;
  scale.blocks = {{0, shape_.columns, 0, 1}};
  scale.initial_value = 1.0;
  scale.is_first_copy = sizes.tensor_rank == 0;
  scale.partial = sizes.sequence_parallel;
  scale_ = parameters.add(scale);
  if (shape_.kind == NormKind::rms_norm || !sizes.model.norm_bias) return;
  Parameter bias = scale;
  bias.name = name + ".bias";
  bias.initial_value = 0.0;
  bias_ = parameters.add(bias);
}

void Norm::forward(const void* x, void* y, void* statistics) {
  device_.norm_forward(parameters_.type(), shape_, x, parameters_.value(scale_),
                       bias_ < 0 ? nullptr : parameters_.value(bias_), y, statistics);
}

void Norm::forward(const void* residual, const void* x, void* sum, void* y, void* statistics) {
  if (residual == nullptr) return forward(x, y, statistics);
  device_.residual_norm_forward(parameters_.type(), shape_, residual, x, parameters_.value(scale_),
                                bias_ < 0 ? nullptr : parameters_.value(bias_), sum, y, statistics);
}

void Norm::backward_input(const void* dy, const void* x, const void* statistics, void* dx) {
  device_.norm_backward_input(parameters_.type(), shape_, dy, x, parameters_.value(scale_), statistics, dx);
}

void Norm::backward_input(const void* dy, const void* x, const void* statistics, const void* residual,
                          void* dx) {
  device_.norm_backward_residual(parameters_.type(), shape_, dy, x, parameters_.value(scale_), statistics,
                                 residual, dx);
}

void Norm::backward_weight(const void* dy, const void* x, const void* statistics) {
  device_.norm_backward_weight(parameters_.type(), shape_, dy, x, statistics, parameters_.gradient(scale_),
                               bias_ < 0 ? nullptr : parameters_.gradient(bias_));
}

}  // namespace mpt::runtime
