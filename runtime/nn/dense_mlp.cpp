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

LinearOptions down_options(const std::string& name, const Mlp& mlp, const RankSizes& s) {
  const int64_t ffn = mlp.ffn_hidden / s.tensor;
  return {name + ".down",
          Split::rows,
          mlp.bias,
          s.hidden,
          mlp.ffn_hidden,
          {{0, s.hidden, ffn * s.tensor_rank, ffn}},
          residual_deviation(s.model.layers.count()),
          s.fp8};
}

}  // namespace

DenseMlp::DenseMlp(const std::string& name, const Mlp& mlp, const RankSizes& sizes, Parameters& parameters,
                   const LayerGroups& groups, Device& device)
    : sizes_(sizes),
      device_(device),
      mlp_(mlp),
      ffn_(mlp.ffn_hidden / sizes.tensor),
      up_columns_(ffn_ * (mlp.gated ? 2 : 1)),
      up_(up_options(name, mlp, sizes), sizes, parameters, groups, device),
      down_(down_options(name, mlp, sizes), sizes, parameters, groups, device) {}

ActivationShape DenseMlp::activation() const {
  return {mlp_.activation, sizes_.tokens, ffn_, mlp_.gated, mlp_.activation_limit.value_or(0.0)};
}

void DenseMlp::forward(const void* x, void* y, Saved& saved, const TokenRoom& room) {
  saved.up = Buffer(device_, sizes_.token_bytes(up_columns_));
  saved.activated = Buffer(device_, sizes_.token_bytes(ffn_));
  up_.forward(x, saved.up.data(), room, {activation(), saved.activated.data()});
  if (y != nullptr) down_.forward(saved.activated.data(), y, room);
}

Buffer DenseMlp::backward_input(const void* dy, void* dx, Saved& saved, const TokenRoom& room,
                                const void* x) {
  Buffer d_activated(device_, sizes_.token_bytes(ffn_));
  saved.d_up = Buffer(device_, sizes_.token_bytes(up_columns_));
  down_.backward_input_of_rows(dy, saved.d_output_gathered, d_activated.data(),
                               {activation(), saved.up.data(), saved.d_up.data()});
  up_.backward_input(saved.d_up.data(), dx, room, x);
  return d_activated;
}

void DenseMlp::backward_weight(const void* dy, const void* x, Saved& saved, const Buffer& all, bool with_up) {
  const WeightOperands of_down{saved.d_output_gathered ? saved.d_output_gathered.data() : dy,
                               saved.activated.data()};
  if (!with_up) return down_.backward_weight(of_down.dy, of_down.x);
  weight_gradients(down_, of_down, up_, {saved.d_up.data(), x}, all);
}

}  // namespace mpt::runtime
