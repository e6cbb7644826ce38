// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/dense_mlp.h"

namespace mpt::runtime {
namespace {

// Indices of magnitudes.
enum { kUpInput, kDownInput, kUpGradient };

}  // namespace

DenseMlp::DenseMlp(const std::string& name, const Mlp& mlp, const PartContext& context)
    : Part(context),
      mlp_(mlp),
      ffn_(mlp.ffn_hidden / sizes_.tensor),
      up_columns_(ffn_ * (mlp.gated ? 2 : 1)),
      up_(columns_options(name + ".up", mlp.bias, {ffn_, mlp.gated ? ffn_ : 0}, sizes_.hidden, sizes_),
          context),
      down_(rows_options(name + ".down", mlp.bias, ffn_, sizes_), context) {}

// An activation with a limit does not compute a magnitude.
ActivationShape DenseMlp::activation(const Saved& saved, int place) const {
  const double limit = mlp_.activation_limit.value_or(0.0);
  void* const magnitude = limit == 0.0 ? magnitude_at(saved.magnitudes, place) : nullptr;
  return {mlp_.activation, sizes_.tokens, ffn_, mlp_.gated, limit, magnitude};
}

Magnitudes DenseMlp::of_up(const Saved& saved) const {
  return {magnitude_at(saved.magnitudes, kUpInput), false, activation(saved, kUpGradient).magnitude};
}

Magnitudes DenseMlp::of_down(const Saved& saved) const {
  void* const of_input = activation(saved, kDownInput).magnitude;
  return {of_input, of_input != nullptr};
}

void DenseMlp::forward(const void* x, void* y, Saved& saved, const TokenRoom& room) {
  if (sizes_.fp8) {
    saved.magnitudes = Buffer(device_, RankSizes::kMagnitudeBytes);
    device_.zero(saved.magnitudes.data(), saved.magnitudes.bytes());
  }
  saved.up = tokens_by(up_columns_);
  saved.activated = tokens_by(ffn_);
  up_.forward(x, saved.up.data(), room, {activation(saved, kDownInput), saved.activated.data()},
              of_up(saved));
  if (y != nullptr) down_.forward(saved.activated.data(), y, room, {}, of_down(saved));
}

Buffer DenseMlp::backward_input(const void* dy, void* dx, Saved& saved, const TokenRoom& room,
                                const void* x) {
  Buffer d_activated = tokens_by(ffn_);
  saved.d_up = tokens_by(up_columns_);
  down_.backward_input_of_rows(dy, saved.d_output_gathered, d_activated.data(),
                               {activation(saved, kUpGradient), saved.up.data(), saved.d_up.data()},
                               x != nullptr && sizes_.weights_with_inputs ? saved.activated.data() : nullptr,
                               of_down(saved));
  up_.backward_input(saved.d_up.data(), dx, room, x, of_up(saved));
  return d_activated;
}

void DenseMlp::backward_weight(const void* dy, const void* x, Saved& saved, const Buffer& all, bool with_up) {
  const WeightOperands down{saved.d_output_gathered ? saved.d_output_gathered.data() : dy,
                            saved.activated.data(), of_down(saved)};
  down_.backward_weights(down, up_, {saved.d_up.data(), x, of_up(saved)}, all, with_up);
}

}  // namespace mpt::runtime
