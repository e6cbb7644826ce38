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

SharedExperts::SharedExperts(const std::string& name, const PartContext& context)
    : Part(context), mlp_(name + ".shared", shared_mlp(*sizes_.kind.moe), context) {
  if (sizes_.kind.moe->shared_gate)
    gate_.emplace(whole_options(name + ".shared_gate", false, 1, sizes_.hidden), context);
}

void SharedExperts::forward(const void* x, void* y, Saved& saved, const TokenRoom& room) {
  if (!gate_ && y == nullptr) return mlp_.forward(x, nullptr, saved.mlp, room);
  Buffer out = local();
  mlp_.forward(x, out.data(), saved.mlp, room);
  if (!gate_) return add(y, out.data(), y);
  saved.out = std::move(out);
  saved.gate = local_by(1);
  gate_->forward(x, saved.gate.data());
  if (y == nullptr) return;
  const Buffer gated = local();
  run(GateForward{
      .shape = gate_shape(), .x = saved.out.data(), .gate = saved.gate.data(), .y = gated.data()});
  add(y, gated.data(), y);
}

void SharedExperts::backward_input(const void* dy, void* dx, Saved& saved, const TokenRoom& room) {
  if (gate_) {
    saved.d_out = local();
    saved.d_gate = local_by(1);
    run(GateBackward{.shape = gate_shape(),
                     .dy = dy,
                     .x = saved.out.data(),
                     .gate = saved.gate.data(),
                     .dx = saved.d_out.data(),
                     .dgate = saved.d_gate.data()});
    const Buffer through_gate = local();
    gate_->backward_input(saved.d_gate.data(), through_gate.data());
    add(dx, through_gate.data(), dx);
    dy = saved.d_out.data();
  }
  const Buffer through_mlp = local();
  mlp_.backward_input(dy, through_mlp.data(), saved.mlp, room, nullptr);
  add(dx, through_mlp.data(), dx);
}

void SharedExperts::backward_weight(const void* dy, const void* x, Saved& saved, const Buffer& all) {
  const Buffer own = sizes_.sequence_parallel && !all ? tokens_by(sizes_.hidden) : Buffer();
  if (gate_) gate_->backward_weight(saved.d_gate.data(), x);
  mlp_.backward_weight(gate_ ? saved.d_out.data() : dy, x, saved.mlp, own ? own : all, true);
}

}  // namespace mpt::runtime
