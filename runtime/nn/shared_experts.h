// SPDX-License-Identifier: Apache-2.0
#pragma once

// SharedExperts: the experts that all tokens share are a dense MLP in addition to the routed ones
// (arXiv:2401.06066, section 3.2). In some models a gate, the sigmoid of one product of the input, multiplies
// its output (Qwen2-MoE).

#include <optional>
#include <string>

#include "runtime/nn/dense_mlp.h"

namespace mpt::runtime {

class SharedExperts : private Part {
 public:
  struct Saved {
    DenseMlp::Saved mlp;
    Buffer gate, out;
    Buffer d_gate, d_out;  // from backward_input to backward_weight
  };

  /// `name`: of the MLP of experts, "layers.0.mlp".
  SharedExperts(const std::string& name, const PartContext& context);

  /// Adds its output to y. Without `y` it stops once the kept activations exist.
  void forward(const void* x, void* y, Saved& saved, const TokenRoom& room);
  /// Adds its gradient to dx.
  void backward_input(const void* dy, void* dx, Saved& saved, const TokenRoom& room);
  void backward_weight(const void* dy, const void* x, Saved& saved, const Buffer& all);

 private:
  GateShape gate_shape() const { return {sizes_.local_tokens, sizes_.hidden, 1}; }

  DenseMlp mlp_;
  std::optional<Linear> gate_;
};

}  // namespace mpt::runtime
