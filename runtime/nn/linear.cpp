// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/linear.h"

namespace mpt::runtime {
namespace {

LinearShape shard_shape(const LinearOptions& options, int64_t tokens) {
  LinearShape shape{tokens, 0, options.blocks.front().columns, options.fp8};
  for (const ShardBlock& block : options.blocks) shape.columns += block.rows;
  return shape;
}

}  // namespace

Linear::Linear(const LinearOptions& options, const RankSizes& sizes, Parameters& parameters,
               Communicator& group, Device& device)
    : sizes_(sizes),
      parameters_(parameters),
      group_(group),
      device_(device),
      split_(options.split),
      shape_(shard_shape(options, options.split == Split::whole ? sizes.local_tokens : sizes.tokens)) {
  Parameter weight;
  weight.name = options.name + ".weight";
  weight.global_rows = options.global_columns;
  weight.global_columns = options.global_inner;
  weight.blocks = options.blocks;
  weight.deviation = options.deviation;
  weight.weight_decay = true;
  weight.is_first_copy = options.split != Split::whole || group.rank() == 0;
  weight.partial = options.split == Split::whole && sizes.sequence_parallel;
  weight_ = parameters.add(weight);
  if (!options.bias) return;
  Parameter bias;
  bias.name = options.name + ".bias";
  bias.global_rows = options.global_columns;
  for (const ShardBlock& block : options.blocks) bias.blocks.push_back({block.global_row, block.rows, 0, 1});
  // A row-parallel bias is the same on every rank of the group, and so is its gradient.
  bias.is_first_copy = options.split == Split::columns || group.rank() == 0;
  bias.partial = weight.partial;
  bias_ = parameters.add(bias);
}

Linear::Linear(int weight, const LinearShape& shape, const RankSizes& sizes, Parameters& parameters,
               Communicator& group, Device& device)
    : sizes_(sizes),
      parameters_(parameters),
      group_(group),
      device_(device),
      shape_(shape),
      weight_(weight) {}

void Linear::forward(const void* x, void* y, void* all_tokens) {
  const DataType type = parameters_.type();
  const void* weight = parameters_.value(weight_);
  const int64_t local = sizes_.local_tokens;
  if (split_ != Split::rows || group_.size() == 1) {
    if (scatters()) {
      group_.all_gather(x, all_tokens, local * shape_.inner, type);
      x = all_tokens;
    }
    return device_.linear_forward(type, shape_, x, weight, bias_value(), y);
  }
  if (scatters()) {
    device_.linear_forward(type, shape_, x, weight, nullptr, all_tokens);
    group_.reduce_scatter(all_tokens, y, local * shape_.columns, type);
  } else {
    device_.linear_forward(type, shape_, x, weight, nullptr, y);
    group_.all_reduce(y, shape_.rows * shape_.columns, type, ReduceOperation::sum);
  }
  if (bias_ >= 0) device_.bias_forward(type, local, shape_.columns, bias_value(), y);
}

void Linear::backward_input(const void* dy, void* dx, void* all_tokens) {
  const DataType type = parameters_.type();
  const bool scattered = split_ == Split::columns && scatters();
  device_.linear_backward_input(type, shape_, dy, parameters_.value(weight_), scattered ? all_tokens : dx);
  if (scattered) {
    group_.reduce_scatter(all_tokens, dx, sizes_.local_tokens * shape_.inner, type);
  } else if (split_ == Split::columns) {
    group_.all_reduce(dx, shape_.rows * shape_.inner, type, ReduceOperation::sum);
  }
}

void Linear::backward_weight(const void* dy, const void* x, void* all_tokens) {
  const DataType type = parameters_.type();
  if (split_ == Split::columns && scatters()) {
    group_.all_gather(x, all_tokens, sizes_.local_tokens * shape_.inner, type);
    x = all_tokens;
  }
  device_.linear_backward_weight(type, shape_, dy, x, parameters_.gradient(weight_),
                                 bias_ < 0 ? nullptr : parameters_.gradient(bias_));
}

const void* Linear::gather_gradient(const void* dy, Buffer& gathered) {
  if (!scatters()) return dy;
  gathered = Buffer(device_, sizes_.token_bytes(shape_.columns));
  group_.all_gather(dy, gathered.data(), sizes_.local_tokens * shape_.columns, parameters_.type());
  return gathered.data();
}

}  // namespace mpt::runtime
