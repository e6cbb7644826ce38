// SPDX-License-Identifier: Apache-2.0
#pragma once

// Head: final norm, projection onto the vocabulary (split over the tensor-parallel group) and cross entropy.
// The loss's gradient is formed in the logits' own memory during forward, so logits exist once.

#include "runtime/nn/linear.h"
#include "runtime/nn/norm.h"

namespace mpt::runtime {

class Head : private Part {
 public:
  struct Saved {
    Buffer input, norm_statistics, norm_out, d_logits;
    Buffer d_norm_out;         // from backward_input to backward_weight
    bool has_weights = false;  // backward_input made the output's weight gradient
  };

  /// Begins a piece of `parameters`. `table` is the index of a weight there that the head shares, or -1 for
  /// one of its own.
  Head(const std::string& norm, int table, const PartContext& context);

  size_t piece() const { return piece_; }
  /// Index of the output's weight.
  int weight() const { return output_.weight(); }
  /// Takes the input over, which lacks `residual` if that is not null. Adds the sum of the token losses to
  /// *loss (Device::loss_gradient); their gradient is scaled by `loss_scale`.
  void forward(Buffer input, const void* residual, const int32_t* targets, double loss_scale, Saved& saved,
               double* loss);
  /// With `weights` the output's weight gradient is made on the way, beside the sum of its input's gradient.
  /// `beside` is added to the gradient of the output's input; null: nothing.
  Buffer backward_input(Saved& saved, bool weights, const void* beside = nullptr);
  void backward_weight(Saved& saved);

 private:
  void scale(const Buffer& x);
  void cross_entropy(const int32_t* targets, double loss_scale, void* logits, double* loss);

  size_t piece_;
  Norm norm_;
  Linear output_;
};

}  // namespace mpt::runtime
