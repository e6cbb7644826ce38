// SPDX-License-Identifier: Apache-2.0
#pragma once

// DenseMlp: a column-parallel product, an activation and a row-parallel product: a layer's MLP, or the
// experts that all tokens share.

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

  /// x and y [local tokens, hidden]. Without `y` it stops where the kept activations are made.
  void forward(const void* x, void* y, Saved& saved, const TokenRoom& room);
  /// dx is written. With `x` the weight gradient of the first product is made on the way, beside the sum of
  /// dx, and where RankSizes::weights_with_inputs the second one's. Returns what it worked with.
  Buffer backward_input(const void* dy, void* dx, Saved& saved, const TokenRoom& room, const void* x);
  /// `with_up`: the first product's, too, whose input is gathered into `all`; without, what backward_input()
  /// left.
  void backward_weight(const void* dy, const void* x, Saved& saved, const Buffer& all, bool with_up);

 private:
  /// It finds the magnitude of what it writes, which goes to `place` of those that are kept.
  ActivationShape activation(const Saved& saved, int place) const;
  Magnitudes of_up(const Saved& saved) const;
  Magnitudes of_down(const Saved& saved) const;

  Mlp mlp_;
  int64_t ffn_, up_columns_;  // on this rank
  Linear up_, down_;
};

}  // namespace mpt::runtime
