// SPDX-License-Identifier: Apache-2.0
#pragma once

// Linear: y = x W^T + b over a tensor-parallel group (Shoeybi et al. 2019, arXiv:1909.08053, section 3).
//   column parallel: each rank holds rows of W and makes columns of y; the input gradient is summed over the
//   group; row parallel: each rank holds columns of W; y is summed over the group, then the bias is added
//   once.
// With sequence parallelism (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2) the input of a column
// parallel layer and the output of a row parallel one are the rank's own tokens: sums are scattered, and what
// a product needs is gathered into `all_tokens`, memory of the caller for [tokens, hidden].

#include <string>
#include <vector>

#include "runtime/nn/parameters.h"
#include "runtime/nn/rank_sizes.h"

namespace mpt::runtime {

/// whole: every rank of the group has all of it, for its local tokens.
enum class Split : uint8_t { columns, rows, whole };

struct LinearOptions {
  std::string name;  // "layers.0.mlp.up"
  Split split = Split::columns;
  bool bias = false;
  int64_t global_columns = 0, global_inner = 0;  // of the whole layer
  std::vector<ShardBlock> blocks;                // of the weight [global_columns, global_inner] on this rank
  double deviation = 0.02;
  bool fp8 = false;
};

class Linear {
 public:
  Linear(const LinearOptions& options, const RankSizes& sizes, Parameters& parameters, Communicator& group,
         Device& device);
  /// A column-parallel layer over a weight that already stands in `parameters`: a tied head.
  Linear(int weight, const LinearShape& shape, const RankSizes& sizes, Parameters& parameters,
         Communicator& group, Device& device);

  void forward(const void* x, void* y, void* all_tokens);
  /// Of a row-parallel layer `dy` is what gather_gradient() returned.
  void backward_input(const void* dy, void* dx, void* all_tokens);
  void backward_weight(const void* dy, const void* x, void* all_tokens);

  /// The gradient of a row-parallel layer's output for all tokens: `dy` itself, or gathered into `gathered`.
  const void* gather_gradient(const void* dy, Buffer& gathered);

 private:
  bool scatters() const { return sizes_.sequence_parallel && group_.size() > 1 && split_ != Split::whole; }
  const void* bias_value() { return bias_ < 0 ? nullptr : parameters_.value(bias_); }

  const RankSizes& sizes_;
  Parameters& parameters_;
  Communicator& group_;
  Device& device_;
  Split split_ = Split::columns;
  LinearShape shape_;
  int weight_ = -1, bias_ = -1;
};

}  // namespace mpt::runtime
