// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/norm.h"

namespace mpt::runtime {

Norm::Norm(const std::string& name, const PartContext& context, int64_t width)
    : Part(context), shape_(sizes_.norm()) {
  if (width > 0) shape_.columns = width;
  scale_ = parameters_.add(whole_vector(name + ".scale", shape_.columns, sizes_.sequence_parallel, 1.0));
  if (shape_.kind == NormKind::rms_norm || !sizes_.model.norm_bias) return;
  bias_ = parameters_.add(whole_vector(name + ".bias", shape_.columns, sizes_.sequence_parallel));
}

Buffer Norm::forward(const void* residual, const void* x, void* sum, void* y) {
  Buffer statistics(device_, shape_.statistics() * size_of(parameters_.state_type()));
  run(NormForward{.shape = shape_,
                  .x = x,
                  .scale = parameters_.value(scale_),
                  .bias = value_if(bias_),
                  .y = y,
                  .statistics = statistics.data(),
                  .residual = residual,
                  .sum = sum});
  return statistics;
}

void Norm::backward_input(const void* dy, const void* x, const void* statistics, const void* residual,
                          void* dx) {
  run(NormBackwardInput{.shape = shape_,
                        .dy = dy,
                        .x = x,
                        .scale = parameters_.value(scale_),
                        .statistics = statistics,
                        .dx = dx,
                        .residual = residual});
}

void Norm::backward_weight(const void* dy, const void* x, const void* statistics) {
  run(NormBackwardWeight{.shape = shape_,
                         .dy = dy,
                         .x = x,
                         .statistics = statistics,
                         .dscale = parameters_.gradient(scale_),
                         .dbias = gradient_if(bias_)});
}

}  // namespace mpt::runtime
