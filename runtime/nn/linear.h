// SPDX-License-Identifier: Apache-2.0
#pragma once

// Linear: y = x W^T + b over a tensor-parallel group (Shoeybi et al. 2019, arXiv:1909.08053, section 3).
//   column parallel: each rank holds rows of W and makes columns of y; the input gradient is summed over the
//   group; row parallel: each rank holds columns of W; y is summed over the group, then the bias is added
//   once.

#include <string>
#include <vector>

#include "runtime/nn/parameters.h"
#include "runtime/nn/rank_sizes.h"

namespace mpt::runtime {

enum class Split : uint8_t { columns, rows };

struct LinearOptions {
  std::string name;  // "layers.0.mlp.up"
  Split split = Split::columns;
  bool bias = false;
  int64_t global_columns = 0, global_inner = 0;  // of the whole layer
  std::vector<ShardBlock> blocks;                // of the weight [global_columns, global_inner] on this rank
  double deviation = 0.02;
};

class Linear {
 public:
  Linear(const LinearOptions& options, int64_t tokens, Parameters& parameters, Communicator& group,
         Device& device);
  /// A layer over a weight that already stands in `parameters`: a tied head.
  Linear(int weight, const LinearShape& shape, Parameters& parameters, Communicator& group, Device& device);

  void forward(const void* x, void* y);
  void backward_input(const void* dy, void* dx);
  void backward_weight(const void* dy, const void* x);

 private:
  const void* bias_value() { return bias_ < 0 ? nullptr : parameters_.value(bias_); }

  Parameters& parameters_;
  Communicator& group_;
  Device& device_;
  Split split_ = Split::columns;
  LinearShape shape_;
  int weight_ = -1, bias_ = -1;
};

}  // namespace mpt::runtime
