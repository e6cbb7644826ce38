// SPDX-License-Identifier: Apache-2.0
#include "models/layer_builder.h"

namespace mpt::models {

LayerBuilder& LayerBuilder::norm(const std::string& name, int64_t width) {
  add({name, shape(OperatorKind::norm, width)});
  const bool layer_norm = model_.norm == NormKind::layer_norm;
  last().parameters = width * (layer_norm && model_.norm_bias ? 2 : 1);
  saves(width);
  const int64_t statistics = bytes(layer_norm ? 2 : 1);
  keep(statistics, statistics);
  last().backward_workspace_bytes = last().gradient_kept_bytes = bytes(width);
  return *this;
}

LayerBuilder& LayerBuilder::linear(const LinearSizes& sizes) {
  OperatorShape s = shape(OperatorKind::linear, sizes.columns);
  s.inner = sizes.inner;
  add({sizes.name, s});
  Operator& op = last();
  op.parameters = sizes.columns * sizes.inner + (sizes.bias ? sizes.columns : 0);
  op.backward_workspace_bytes = bytes(sizes.inner);
  // The gradient of a row-parallel layer's input goes through an activation or the attention core at once.
  if (sizes.parallel != Parallel::rows) op.gradient_kept_bytes = op.backward_workspace_bytes;
  // The outputs of row-parallel layers are summed into the residual and freed; the others are saved
  // downstream.
  if (sizes.parallel == Parallel::rows) op.forward_workspace_bytes = bytes(sizes.columns);
  if (layout_.tensor == 1) return *this;
  if (sizes.parallel == Parallel::rows) op.forward_collectives.push_back(tensor_all_reduce(sizes.columns));
  if (sizes.parallel == Parallel::columns) op.backward_collectives.push_back(tensor_all_reduce(sizes.inner));
  return *this;
}

LayerBuilder& LayerBuilder::expert_linear(const LinearSizes& sizes) {
  const MixtureOfExperts& moe = *model_.moe;
  linear(sizes);
  Operator& op = last();
  op.shape.kind = OperatorKind::expert_linear;
  op.shape.rows = tokens_ * moe.experts_per_token;
  op.shape.batch = moe.experts;
  op.parameters *= moe.experts;
  op.backward_workspace_bytes = rounded(op.shape.rows * sizes.inner * unit_);
  if (sizes.parallel != Parallel::rows) op.gradient_kept_bytes = op.backward_workspace_bytes;
  return *this;
}

LayerBuilder& LayerBuilder::attention(const AttentionSizes& sizes) {
  OperatorShape s = shape(OperatorKind::attention, 0);
  s.rows = 0;
  s.batch = layout_.micro_batch;
  s.sequence = sequence_;
  s.heads = share(model_.heads);
  s.kv_heads = sizes.kv_heads;
  s.head_dim = sizes.head_dim;
  s.value_head_dim = sizes.value_head_dim;
  if (model_.sliding_window && layer_ % model_.sliding_window_interval == 0) s.inner = *model_.sliding_window;
  add({"attention.core", s});
  if (model_.attention_sinks) last().parameters = s.heads;
  saves(sizes.qkv_columns);
  keep(bytes(s.heads), 0);  // log-sum-exp
  last().backward_workspace_bytes = last().gradient_kept_bytes = bytes(sizes.qkv_columns);
  return *this;
}

LayerBuilder& LayerBuilder::residual(const std::string& name) {
  return add({name, shape(OperatorKind::residual_add, model_.hidden)});
}

LayerBuilder& LayerBuilder::activation(Operator op, int64_t input_columns) {
  const int64_t input = rounded(op.shape.rows * input_columns * unit_);
  add(std::move(op));
  keep(input, input);
  last().backward_workspace_bytes = last().gradient_kept_bytes = input;
  return *this;
}

LayerProgram LayerBuilder::take_layer() {
  program_.input_bytes = bytes(model_.hidden);
  return std::move(program_);
}

}  // namespace mpt::models
