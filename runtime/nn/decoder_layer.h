// SPDX-License-Identifier: Apache-2.0
#pragma once

// DecoderLayer: attention and MLP with their residuals, as the LayerProgram of models/layer_program.h
// describes them. Tensors are [tokens, columns of this rank].
//
// Memory: what a Saved holds lives from forward to the end of this layer's backward; everything else is freed
// when the call that made it returns. An output buffer passes to the caller.

#include "runtime/nn/linear.h"
#include "runtime/nn/norm.h"

namespace mpt::runtime {

class DecoderLayer {
 public:
  /// What forward keeps for backward; after backward_input also what the weight gradients need.
  struct Saved {
    Buffer input, norm1_statistics, norm1_out, qkv, log_sum_exp, core_out;
    Buffer middle, norm2_statistics, norm2_out, up, activated;
    // gradients kept from backward_input to backward_weight
    Buffer d_output, d_up, d_norm2_out, d_middle, d_qkv, d_norm1_out;
  };

  DecoderLayer(int64_t index, const RankSizes& sizes, Parameters& parameters, Communicator& group,
               Device& device);

  /// Takes the input over into `saved`; returns the output.
  Buffer forward(Buffer input, Saved& saved);
  /// `d_output` may be empty where `d_output_data` points to memory that is not this layer's (a transfer
  /// slot).
  Buffer backward_input(Saved& saved, Buffer d_output, const void* d_output_data);
  void backward_weight(Saved& saved, const void* d_output_data);

 private:
  Buffer tokens_by(int64_t columns) const { return {device_, sizes_.token_bytes(columns)}; }
  void forward_attention(Saved& saved);
  void attend(Saved& saved);
  void forward_mlp_inner(Saved& saved);
  void recompute(Saved& saved);
  void keep_only_what_is_asked(Saved& saved);

  const RankSizes& sizes_;
  Device& device_;
  Norm norm1_;
  Linear qkv_, attention_output_;
  Norm norm2_;
  Linear up_, down_;
};

}  // namespace mpt::runtime
