// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/shared_experts.h"

namespace mpt::runtime {
namespace {

Mlp shared_mlp(const MixtureOfExperts& moe) {
  Mlp mlp = moe.expert;
  mlp.ffn_hidden = moe.shared_ffn_hidden;
  mlp.bias = false;
  return mlp;
}

}  // namespace

SharedExperts::SharedExperts(const std::string& name, const RankSizes& sizes, Parameters& parameters,
                             const LayerGroups& groups, Device& device)
    : sizes_(sizes),
      device_(device),
      mlp_(name + ".shared", shared_mlp(*sizes.kind.moe), sizes, parameters, groups, device) {
  if (!sizes.kind.moe->shared_gate) return;
  const LinearOptions options{name + ".shared_gate",     Split::whole, false, 1, sizes.hidden,
                              {{0, 1, 0, sizes.hidden}}, kDeviation};
  gate_.emplace(options, sizes, parameters, groups, device);
}

void SharedExperts::forward(const void* x, void* y, Saved& saved, const TokenRoom& room) {
  if (!gate_ && y == nullptr) return mlp_.forward(x, nullptr, saved.mlp, room);
  Buffer out = local();
  mlp_.forward(x, out.data(), saved.mlp, room);
  if (!gate_) return add(y, out);
  saved.out = std::move(out);
  saved.gate = Buffer(device_, sizes_.local_bytes(1));
  gate_->forward(x, saved.gate.data());
  if (y == nullptr) return;
  const Buffer gated = local();
  device_.run(sizes_.type, GateForward{gate_shape(), saved.out.data(), saved.gate.data(), gated.data()});
  add(y, gated);
}

void SharedExperts::backward_input(const void* dy, void* dx, Saved& saved, const TokenRoom& room) {
  if (gate_) {
    saved.d_out = local();
    saved.d_gate = Buffer(device_, sizes_.local_bytes(1));
    device_.run(sizes_.type, GateBackward{gate_shape(), dy, saved.out.data(), saved.gate.data(),
                                          saved.d_out.data(), saved.d_gate.data()});
    const Buffer through_gate = local();
    gate_->backward_input(saved.d_gate.data(), through_gate.data());
    add(dx, through_gate);
    dy = saved.d_out.data();
  }
  const Buffer through_mlp = local();
  mlp_.backward_input(dy, through_mlp.data(), saved.mlp, room, nullptr);
  add(dx, through_mlp);
}

void SharedExperts::backward_weight(const void* dy, const void* x, Saved& saved, const Buffer& all) {
  const Buffer own =
      sizes_.sequence_parallel && !all ? Buffer(device_, sizes_.token_bytes(sizes_.hidden)) : Buffer();
  if (gate_) gate_->backward_weight(saved.d_gate.data(), x);
  mlp_.backward_weight(gate_ ? saved.d_out.data() : dy, x, saved.mlp, own ? own : all, true);
}

}  // namespace mpt::runtime
