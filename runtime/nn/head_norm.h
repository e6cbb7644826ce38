// SPDX-License-Identifier: Apache-2.0
#pragma once

// HeadNorm: an rms norm over each query head and each key head, one scale for all queries and one for all
// keys (Qwen3). A rank has the gradient from its own heads only.

#include <string>

#include "runtime/nn/parameters.h"
#include "runtime/nn/rank_sizes.h"

namespace mpt::runtime {

class HeadNorm {
 public:
  HeadNorm(const std::string& name, const RankSizes& sizes, Parameters& parameters, Device& device);

  /// In place on qkv; `kept` gets queries and keys as they were.
  void forward(void* qkv, Buffer& kept);
  /// In place on dqkv; `d_scales` gets the gradient of both scales, until backward_weight adds it.
  void backward_input(const Buffer& kept, void* dqkv, Buffer& d_scales);
  void backward_weight(const Buffer& d_scales);

 private:
  const RankSizes& sizes_;
  Parameters& parameters_;
  Device& device_;
  int query_ = -1, key_ = -1;
};

}  // namespace mpt::runtime
