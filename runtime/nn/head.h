// SPDX-License-Identifier: Apache-2.0
#pragma once

// Head: final norm, projection onto the vocabulary (split over the tensor-parallel group) and cross entropy.
// Forward computes the loss's gradient in the logits' memory, so only one such buffer exists.

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

  /// Begins a piece of `parameters`. `table` is the index of a shared weight there; -1: the head has a
  /// separate one.
  Head(const std::string& norm, int table, const PartContext& context);

  size_t piece() const { return piece_; }
  /// Index of the output's weight.
  int weight() const { return output_.weight(); }
  /// Takes ownership of the input, which lacks `residual` if that is not null. Adds the sum of the token
  /// losses to *loss (Device::loss_gradient); `loss_scale` scales their gradient.
  void forward(Buffer input, const void* residual, const int32_t* targets, double loss_scale, Saved& saved,
               double* loss);
  /// `weights`: also computes the output's weight gradient, overlapped with the reduction of its input's
  /// gradient. `beside` is added to the gradient of the output's input; it may be null.
  Buffer backward_input(Saved& saved, bool weights, const void* beside = nullptr);
  void backward_weight(Saved& saved);

 private:
  void cross_entropy(const int32_t* targets, double loss_scale, void* logits, double* loss);

  size_t piece_;
  Norm norm_;
  Linear output_;
};

}  // namespace mpt::runtime
