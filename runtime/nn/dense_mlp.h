// SPDX-License-Identifier: Apache-2.0
#pragma once

// DenseMlp: a column-parallel product, an activation and a row-parallel product. It is a layer's MLP, or the
// experts shared by all tokens.

#include <string>

#include "runtime/nn/linear.h"

namespace mpt::runtime {

class DenseMlp : private Part {
 public:
  struct Saved {
    Buffer up, activated;
    Buffer magnitudes;               // in 8 bits
    Buffer d_up, d_output_gathered;  // from backward_input to backward_weight
  };

  DenseMlp(const std::string& name, const Mlp& mlp, const PartContext& context);

  /// x and y [local tokens, hidden]. Without `y` it stops once the kept activations exist.
  void forward(const void* x, void* y, Saved& saved, const TokenRoom& room);
  /// dx is written. With `x`, also computes the weight gradient of the first product, overlapped with the
  /// reduction of dx, and with RankSizes::weights_with_inputs that of the second one. Returns its working
  /// memory.
  Buffer backward_input(const void* dy, void* dx, Saved& saved, const TokenRoom& room, const void* x);
  /// `with_up`: also computes the first product's gradient and gathers its input into `all`. Without it, only
  /// the gradients that backward_input() left.
  void backward_weight(const void* dy, const void* x, Saved& saved, const Buffer& all, bool with_up);

 private:
  /// The activation computes the magnitude of its output, and stores it at `place` of the kept ones.
  ActivationShape activation(const Saved& saved, int place) const;
  Magnitudes of_up(const Saved& saved) const;
  Magnitudes of_down(const Saved& saved) const;

  Mlp mlp_;
  int64_t ffn_, up_columns_;  // on this rank
  Linear up_, down_;
};

}  // namespace mpt::runtime
