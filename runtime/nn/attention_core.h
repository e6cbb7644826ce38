// SPDX-License-Identifier: Apache-2.0
#pragma once

// AttentionCore: causal attention of queries to keys and values, computed together by the context ranks that
// share a sequence. ring: blocks of keys and values go round, queries stay (Liu et al. 2023,
// arXiv:2310.01889). A rank holds a piece from the sequence's front and one from its back, so that all have
// equal work. During the work on a block the next one is in transit, and so is the sum of the earlier ranks'
// gradients for the block. all_to_all: heads are exchanged for tokens, and each rank attends over whole
// sequences for its heads (Jacobs et al. 2023, arXiv:2309.14509).

#include "runtime/nn/head_exchange.h"

namespace mpt::runtime {

/// Learned logits that join the softmax, for all heads of the rank, and their gradients in full precision.
/// Null: there are none.
struct Sinks {
  const void* values = nullptr;
  void* gradient = nullptr;
};

class AttentionCore : private Part {
 public:
  explicit AttentionCore(const PartContext& context);

  /// Converts qkv from the form of AttentionShape into the one for forward and backward.
  void prepare(Buffer& qkv) const;
  /// out [b*s, a*e]; log_sum_exp holds a number per token and head.
  void forward(const Buffer& qkv, void* out, void* log_sum_exp, const void* sinks) const;
  /// `dqkv` is written, and so is the sinks' gradient if there are any.
  void backward(const void* dout, const Buffer& qkv, const void* out, const void* log_sum_exp, void* dqkv,
                const Sinks& sinks) const;

 private:
  bool rings() const { return context_group_.size() > 1 && sizes_.context_method == ContextMethod::ring; }
  bool exchanges() const { return context_group_.size() > 1 && !rings(); }
  AttentionShape exchanged_shape() const;
  AttentionBlock block_of(int source) const;
  /// Among the heads that this rank has after the exchange.
  int64_t first_sink() const;
  void backward_sinks(const AttentionShape& shape, const Sinks& sinks, const void* dout, const void* out,
                      const void* log_sum_exp) const;
  void ring_forward(const Buffer& qkv, void* out, void* log_sum_exp) const;
  void ring_backward(const void* dout, const Buffer& qkv, const void* out, const void* log_sum_exp,
                     void* dqkv) const;
  Buffer own_block(const Buffer& qkv) const;
  Posted pass_on(const Buffer& block, const Buffer& arriving) const;
  HeadParts parts_of(bool outputs) const;

  Communicator& context_group_;
  const BesideCompute ring_;
  const HeadExchange exchange_;
  // [rank of the keys][query]; `hidden_` only with a window.
  std::vector<std::vector<int32_t>> visible_, hidden_;
};

}  // namespace mpt::runtime
