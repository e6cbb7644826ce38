// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/gated_delta_layer.h"

#include <cmath>

namespace mpt::runtime {
namespace {

// Start values in the middle of the ranges that Mamba-2 draws from (state-spaces/mamba, modules/mamba2.py):
// decays exp(2) of 1 to 16, steps softplus(-4.6) = 0.01 of 0.001 to 0.1.
constexpr double kDecay = 2.0, kDecayDeviation = 0.5, kStepBias = -4.6, kStepDeviation = 1.0;

DeltaShape delta_shape(const RankSizes& s) {
  const LinearMixer& l = *s.kind.linear;
  DeltaShape shape{s.batch,   s.sequence, l.heads / s.tensor, l.key_heads / s.tensor, l.head_dim,
                   l.key_dim, l.chunk};
  shape.row = shape.columns() + shape.values() + 2 * shape.heads;
  return shape;
}

// This rank's part of rows that lie behind each other for all ranks: queries, keys, values, the gate on the
// output, b and a; the first three are channels of the convolution.
std::vector<ShardBlock> delta_blocks_of(const RankSizes& s, const DeltaShape& d, bool channels,
                                        int64_t columns) {
  std::vector<int64_t> parts{d.keys(), d.keys(), d.values()};
  if (!channels) parts.insert(parts.end(), {d.values(), d.heads, d.heads});
  std::vector<ShardBlock> blocks;
  int64_t first = 0;
  for (const int64_t part : parts) {
    blocks.push_back({first + part * s.tensor_rank, part, 0, columns});
    first += part * s.tensor;
  }
  return blocks;
}

LinearOptions delta_input_options(const std::string& name, const RankSizes& s) {
  const DeltaShape d = delta_shape(s);
  return {name + ".input",  Split::columns, false,
          d.row * s.tensor, s.hidden,       delta_blocks_of(s, d, false, s.hidden),
          kDeviation,       s.fp8};
}

LinearOptions delta_output_options(const std::string& name, const RankSizes& s) {
  const int64_t inner = delta_shape(s).values();
  return {name + ".output",
          Split::rows,
          false,
          s.hidden,
          inner * s.tensor,
          {{0, s.hidden, inner * s.tensor_rank, inner}},
          residual_deviation(s.model.layers.count()),
          s.fp8};
}

}  // namespace

GatedDeltaLayer::GatedDeltaLayer(const std::string& name, const RankSizes& s, Parameters& parameters,
                                 const LayerGroups& groups, Device& device)
    : sizes_(s),
      parameters_(parameters),
      device_(device),
      delta_(delta_shape(s)),
      input_(delta_input_options(name, s), s, parameters, groups, device),
      output_(delta_output_options(name, s), s, parameters, groups, device) {
  if (const int64_t length = mixer().convolution; length > 0) {
    convolution_ = add_weight(name + ".convolution.weight", delta_blocks_of(s, delta_, true, length), 0.0,
                              1.0 / std::sqrt(3.0 * double(length)));
  }
  const std::vector<ShardBlock> heads{{delta_.heads * s.tensor_rank, delta_.heads, 0, 1}};
  decay_ = add_weight(name + ".decay", heads, kDecay, kDecayDeviation);
  step_bias_ = add_weight(name + ".step_bias", heads, kStepBias, kStepDeviation);
  norm_ = add_norm(name + ".norm.scale");
}

// Of this rank's heads alone.
int GatedDeltaLayer::add_weight(const std::string& name, std::vector<ShardBlock> blocks, double start,
                                double deviation) {
  Parameter weight;
  weight.name = name;
  for (const ShardBlock& block : blocks) weight.global_rows += block.rows * sizes_.tensor;
  weight.global_columns = blocks.front().columns;
  weight.blocks = std::move(blocks);
  weight.initial_value = start;
  weight.deviation = deviation;
  weight.weight_decay = weight.global_columns > 1;
  return parameters_.add(weight);
}

// All heads of all ranks share it.
int GatedDeltaLayer::add_norm(const std::string& name) {
  Parameter scale;
  scale.name = name;
  scale.global_rows = delta_.head_dim;
  scale.blocks = {{0, delta_.head_dim, 0, 1}};
  scale.initial_value = 1.0;
  scale.is_first_copy = sizes_.tensor_rank == 0;
  scale.partial = sizes_.tensor > 1;
  return parameters_.add(scale);
}

ConvolutionShape GatedDeltaLayer::convolution() const {
  return {sizes_.batch, sizes_.sequence, channels(), mixer().convolution, row()};
}

GatedNormShape GatedDeltaLayer::gated_norm() const {
  return {sizes_.tokens, delta_.heads, delta_.head_dim, row(), sizes_.model.norm_epsilon};
}

DeltaInputs GatedDeltaLayer::inputs(const Buffer& qkv, const Saved& saved) {
  return {qkv.data(), column(saved.projected, channels() + delta_.values()), parameters_.value(decay_),
          parameters_.value(step_bias_)};
}

// Queries, keys and values for the rule.
Buffer GatedDeltaLayer::convolve(const Saved& saved) {
  Buffer qkv = tokens_by(channels());
  if (convolution_ >= 0) {
    device_.convolution_forward(sizes_.type, convolution(), saved.projected.data(),
                                parameters_.value(convolution_), qkv.data());
  } else {
    device_.copy_columns(sizes_.type, sizes_.type, sizes_.tokens, channels(), saved.projected.data(), row(),
                         qkv.data(), channels());
  }
  return qkv;
}

void GatedDeltaLayer::forward(const void* x, void* y, Saved& saved, const TokenRoom& room) {
  saved.projected = tokens_by(row());
  input_.forward(x, saved.projected.data(), room);
  saved.core_out = tokens_by(delta_.values());
  saved.normed = tokens_by(delta_.values());
  const Buffer qkv = convolve(saved), work = numbers(delta_.forward_room());
  device_.delta_forward(sizes_.type, delta_, inputs(qkv, saved), saved.core_out.data(), work.data());
  device_.gated_norm_forward(sizes_.type, gated_norm(), saved.core_out.data(),
                             column(saved.projected, channels()), parameters_.value(norm_),
                             saved.normed.data());
  output_.forward(saved.normed.data(), y, room);
}

// Parts of one piece of memory.
GatedDeltaLayer::Weights GatedDeltaLayer::gradients(const Buffer& all) const {
  char* at = static_cast<char*>(all.data());
  const auto take = [&](int64_t count) {
    char* const taken = at;
    at += count * sizes_.state_unit();
    return taken;
  };
  Weights of{};
  of.convolution = take(convolution_weights());
  of.decay = take(delta_.heads);
  of.step_bias = take(delta_.heads);
  of.norm = take(delta_.head_dim);
  return of;
}

Buffer GatedDeltaLayer::backward_input(const void* dy, const void* x, void* dx, Saved& saved,
                                       const TokenRoom& room, bool column_weights) {
  Buffer d_core = tokens_by(delta_.values());
  output_.backward_input_of_rows(dy, saved.d_output_gathered, d_core.data());
  saved.d_projected = tokens_by(row());
  saved.d_weights = numbers(convolution_weights() + 2 * delta_.heads + delta_.head_dim);
  device_.zero(saved.d_weights.data(), saved.d_weights.bytes());
  const Weights d = gradients(saved.d_weights);
  const Buffer through_norm = tokens_by(delta_.values());
  device_.gated_norm_backward(sizes_.type, gated_norm(), d_core.data(), saved.core_out.data(),
                              column(saved.projected, channels()), parameters_.value(norm_),
                              through_norm.data(), column(saved.d_projected, channels()), d.norm);
  const Buffer qkv = convolve(saved), d_qkv = tokens_by(channels()), work = numbers(delta_.backward_room());
  device_.delta_backward(
      sizes_.type, delta_, inputs(qkv, saved), through_norm.data(),
      {d_qkv.data(), column(saved.d_projected, channels() + delta_.values()), d.decay, d.step_bias},
      work.data());
  backward_convolution(d_qkv, saved);
  input_.backward_input(saved.d_projected.data(), dx, room, column_weights ? x : nullptr);
  return d_core;
}

void GatedDeltaLayer::backward_convolution(const Buffer& d_qkv, Saved& saved) {
  if (convolution_ >= 0) {
    device_.convolution_backward(sizes_.type, convolution(), d_qkv.data(), saved.projected.data(),
                                 parameters_.value(convolution_), saved.d_projected.data(),
                                 gradients(saved.d_weights).convolution);
  } else {
    device_.copy_columns(sizes_.type, sizes_.type, sizes_.tokens, channels(), d_qkv.data(), channels(),
                         saved.d_projected.data(), row());
  }
}

void GatedDeltaLayer::backward_weight(const void* dy, const void* x, Saved& saved, const Buffer& all,
                                      bool with_columns) {
  const Weights d = gradients(saved.d_weights);
  const auto add = [&](int weight, int64_t count, const void* part) {
    if (weight < 0) return;
    void* const gradient = parameters_.gradient(weight);
    device_.residual_add(parameters_.state_type(), count, gradient, part, gradient);
  };
  add(convolution_, convolution_weights(), d.convolution);
  add(decay_, delta_.heads, d.decay);
  add(step_bias_, delta_.heads, d.step_bias);
  add(norm_, delta_.head_dim, d.norm);
  const WeightOperands of_output{saved.d_output_gathered ? saved.d_output_gathered.data() : dy,
                                 saved.normed.data()};
  if (!with_columns) return output_.backward_weight(of_output.dy, of_output.x);
  weight_gradients(output_, of_output, input_, {saved.d_projected.data(), x}, all);
}

}  // namespace mpt::runtime
