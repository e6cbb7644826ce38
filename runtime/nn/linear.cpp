// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/linear.h"

namespace mpt::runtime {
namespace {

LinearShape shard_shape(const LinearOptions& options, int64_t tokens) {
  LinearShape shape{tokens, 0, options.blocks.front().columns};
  for (const ShardBlock& block : options.blocks) shape.columns += block.rows;
  return shape;
}

}  // namespace

Linear::Linear(const LinearOptions& options, int64_t tokens, Parameters& parameters, Communicator& group,
               Device& device)
    : parameters_(parameters),
      group_(group),
      device_(device),
      split_(options.split),
      shape_(shard_shape(options, tokens)) {
  Parameter weight;
  weight.name = options.name + ".weight";
  weight.global_rows = options.global_columns;
  weight.global_columns = options.global_inner;
  weight.blocks = options.blocks;
  weight.deviation = options.deviation;
  weight.weight_decay = true;
  weight_ = parameters.add(weight);
  if (!options.bias) return;
  Parameter bias;
  bias.name = options.name + ".bias";
  bias.global_rows = options.global_columns;
  for (const ShardBlock& block : options.blocks) bias.blocks.push_back({block.global_row, block.rows, 0, 1});
  // A row-parallel bias is the same on every rank of the group.
  bias.counts_in_norm = options.split == Split::columns || group.rank() == 0;
  bias_ = parameters.add(bias);
}

Linear::Linear(int weight, const LinearShape& shape, Parameters& parameters, Communicator& group,
               Device& device)
    : parameters_(parameters), group_(group), device_(device), shape_(shape), weight_(weight) {}

void Linear::forward(const void* x, void* y) {
  const DataType type = parameters_.type();
  const void* weight = parameters_.value(weight_);
  if (split_ == Split::columns || group_.size() == 1) {
    return device_.linear_forward(type, shape_, x, weight, bias_value(), y);
  }
  device_.linear_forward(type, shape_, x, weight, nullptr, y);
  group_.all_reduce(y, shape_.rows * shape_.columns, type, ReduceOperation::sum);
  if (bias_ >= 0) device_.bias_forward(type, shape_.rows, shape_.columns, bias_value(), y);
}

void Linear::backward_input(const void* dy, void* dx) {
  const DataType type = parameters_.type();
  device_.linear_backward_input(type, shape_, dy, parameters_.value(weight_), dx);
  if (split_ == Split::columns) group_.all_reduce(dx, shape_.rows * shape_.inner, type, ReduceOperation::sum);
}

void Linear::backward_weight(const void* dy, const void* x) {
  device_.linear_backward_weight(parameters_.type(), shape_, dy, x, parameters_.gradient(weight_),
                                 bias_ < 0 ? nullptr : parameters_.gradient(bias_));
}

}  // namespace mpt::runtime
