// SPDX-License-Identifier: Apache-2.0
#pragma once

// Norm: layer norm or rms norm over rows, usually of the hidden width. Every rank of a tensor-parallel group
// holds all of it. With sequence parallelism each rank has the gradient of its own tokens only; see
// Parameter::partial.

#include <string>

#include "runtime/nn/part.h"

namespace mpt::runtime {

class Norm : private Part {
 public:
  /// `width`: of the rows; 0: the hidden width.
  Norm(const std::string& name, const PartContext& context, int64_t width = 0);

  /// Returns the statistics, which the backward needs.
  Buffer forward(const void* x, void* y) { return forward(nullptr, x, nullptr, y); }
  /// Of x + residual, which is written to `sum`; without a residual `sum` is x.
  Buffer forward(const void* residual, const void* x, void* sum, void* y);
  void backward_input(const void* dy, const void* x, const void* statistics, void* dx) {
    backward_input(dy, x, statistics, nullptr, dx);
  }
  /// dx = the gradient through the norm + the gradient of the residual path, if there is one.
  void backward_input(const void* dy, const void* x, const void* statistics, const void* residual, void* dx);
  void backward_weight(const void* dy, const void* x, const void* statistics);

 private:
  NormShape shape_;
  int scale_ = -1, bias_ = -1;
};

}  // namespace mpt::runtime
