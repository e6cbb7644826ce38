// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/dense_mlp.h"

namespace mpt::runtime {
namespace {

LinearOptions up_options(const std::string& name, const Mlp& mlp, const RankSizes& s) {
  const int64_t ffn = mlp.ffn_hidden / s.tensor, parts = mlp.gated ? 2 : 1;
  LinearOptions options{name + ".up", Split::columns,
                        mlp.bias,     parts * mlp.ffn_hidden,
                        s.hidden,     {{ffn * s.tensor_rank, ffn, 0, s.hidden}},
                        kDeviation,   s.fp8};
  if (mlp.gated) options.blocks.push_back({ffn * (s.tensor + s.tensor_rank), ffn, 0, s.hidden});
  return options;
}

// Places of magnitudes.
enum { kUpInput, kDownInput, kUpGradient };

}  // namespace

DenseMlp::DenseMlp(const std::string& name, const Mlp& mlp, const RankSizes& sizes, Parameters& parameters,
                   const LayerGroups& groups, Device& device)
    : sizes_(sizes),
      device_(device),
      mlp_(mlp),
      ffn_(mlp.ffn_hidden / sizes.tensor),
      up_columns_(ffn_ * (mlp.gated ? 2 : 1)),
      up_(up_options(name, mlp, sizes), sizes, parameters, groups, device),
      down_(rows_options(name + ".down", mlp.bias, mlp.ffn_hidden / sizes.tensor, sizes), sizes, parameters,
            groups, device) {}

ActivationShape DenseMlp::activation() const {
  return {mlp_.activation, sizes_.tokens, ffn_, mlp_.gated, mlp_.activation_limit.value_or(0.0)};
}

// Activations find the magnitudes of what they write, but for those with a limit.
ActivationShape DenseMlp::forward_activation(const Saved& saved) const {
  ActivationShape shape = activation();
  if (shape.limit == 0.0) shape.magnitude = magnitude_at(saved.magnitudes, kDownInput);
  return shape;
}

ActivationShape DenseMlp::backward_activation(const Saved& saved) const {
  ActivationShape shape = activation();
  if (shape.limit == 0.0) shape.magnitude = magnitude_at(saved.magnitudes, kUpGradient);
  return shape;
}

Magnitudes DenseMlp::of_up(const Saved& saved) const {
  return {magnitude_at(saved.magnitudes, kUpInput), false, backward_activation(saved).magnitude};
}

Magnitudes DenseMlp::of_down(const Saved& saved) const {
  void* const of_input = forward_activation(saved).magnitude;
  return {of_input, of_input != nullptr};
}

void DenseMlp::forward(const void* x, void* y, Saved& saved, const TokenRoom& room) {
  if (sizes_.fp8) {
    saved.magnitudes = Buffer(device_, RankSizes::kMagnitudeBytes);
    device_.zero(saved.magnitudes.data(), saved.magnitudes.bytes());
  }
  saved.up = Buffer(device_, sizes_.token_bytes(up_columns_));
  saved.activated = Buffer(device_, sizes_.token_bytes(ffn_));
  up_.forward(x, saved.up.data(), room, {forward_activation(saved), saved.activated.data()}, of_up(saved));
  if (y != nullptr) down_.forward(saved.activated.data(), y, room, {}, of_down(saved));
}

Buffer DenseMlp::backward_input(const void* dy, void* dx, Saved& saved, const TokenRoom& room,
                                const void* x) {
  Buffer d_activated(device_, sizes_.token_bytes(ffn_));
  saved.d_up = Buffer(device_, sizes_.token_bytes(up_columns_));
  down_.backward_input_of_rows(dy, saved.d_output_gathered, d_activated.data(),
                               {backward_activation(saved), saved.up.data(), saved.d_up.data()},
                               x != nullptr && sizes_.weights_with_inputs ? saved.activated.data() : nullptr,
                               of_down(saved));
  up_.backward_input(saved.d_up.data(), dx, room, x, of_up(saved));
  return d_activated;
}

void DenseMlp::backward_weight(const void* dy, const void* x, Saved& saved, const Buffer& all, bool with_up) {
  if (!with_up && sizes_.weights_with_inputs) return;
  const WeightOperands down{saved.d_output_gathered ? saved.d_output_gathered.data() : dy,
                            saved.activated.data(), of_down(saved)};
  if (!with_up) return down_.backward_weight(down.dy, down.x, down.magnitudes);
  weight_gradients(down_, down, up_, {saved.d_up.data(), x, of_up(saved)}, all);
}

}  // namespace mpt::runtime
