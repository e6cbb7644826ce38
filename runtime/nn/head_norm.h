// SPDX-License-Identifier: Apache-2.0
#pragma once

// HeadNorm: an rms norm of queries and one of keys. Either per head, with one scale for all queries and one
// for all keys (Qwen3): then a rank has only the gradient from its own heads. Or over all heads at once (OLMo
// 2): then ranks add up their sums for each token, and each has the scales of its own heads.

#include <string>

#include "runtime/nn/part.h"

namespace mpt::runtime {

class HeadNorm : private Part {
 public:
  struct Saved {
    Buffer kept, sums;
    Buffer d_scales;  // until backward_weight adds them
  };

  HeadNorm(const std::string& name, const PartContext& context);

  /// In place on qkv; keeps the old queries and keys.
  void forward(void* qkv, Saved& saved);
  /// In place on dqkv.
  void backward_input(void* dqkv, Saved& saved);
  void backward_weight(const Saved& saved);

 private:
  bool whole() const { return sizes_.kind.attention->query_key_norm == QueryKeyNorm::full; }
  /// Elements of the queries' scale, or of the keys'.
  int64_t width(int64_t heads) const { return whole() ? heads * sizes_.head_dim : sizes_.head_dim; }
  int add(const std::string& name, int64_t heads);
  void sum_over_ranks(void* numbers);

  int query_ = -1, key_ = -1;
};

}  // namespace mpt::runtime
