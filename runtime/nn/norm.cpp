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

void Norm::forward(const void* residual, const void* x, void* sum, void* y, void* statistics) {
  device_.run(parameters_.type(), NormForward{.shape = shape_,
                                              .x = x,
                                              .scale = parameters_.value(scale_),
                                              .bias = bias_ < 0 ? nullptr : parameters_.value(bias_),
                                              .y = y,
                                              .statistics = statistics,
                                              .residual = residual,
                                              .sum = sum});
}

void Norm::backward_input(const void* dy, const void* x, const void* statistics, const void* residual,
                          void* dx) {
  device_.run(parameters_.type(), NormBackwardInput{.shape = shape_,
                                                    .dy = dy,
                                                    .x = x,
                                                    .scale = parameters_.value(scale_),
                                                    .statistics = statistics,
                                                    .dx = dx,
                                                    .residual = residual});
}

void Norm::backward_weight(const void* dy, const void* x, const void* statistics) {
  device_.run(parameters_.type(), NormBackwardWeight{shape_, dy, x, statistics, parameters_.gradient(scale_),
                                                     bias_ < 0 ? nullptr : parameters_.gradient(bias_)});
}

}  // namespace mpt::runtime
